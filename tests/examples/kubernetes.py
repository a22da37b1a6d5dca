"""The example for Kubernetes: the webhook's answer, applied as an API server would, must agree with
the manifests."""
import base64
import copy
import json
import re
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
FOLDER = Path(__file__).resolve().parents[2] / "examples" / "kubernetes"
sys.path.insert(0, str(FOLDER))

import webhook  # noqa: E402

IMAGE = "registry.example/loam:1"


def applied(pod, changes):
    """JSON Patch (RFC 6902), the operation `add`."""
    pod = copy.deepcopy(pod)
    for change in changes:
        assert change["op"] == "add"
        *way, last = change["path"].strip("/").split("/")
        place = pod
        for word in way:
            place = place[int(word)] if isinstance(place, list) else place[word]
        if isinstance(place, list):
            assert last == "-"
            place.append(change["value"])
        else:
            place[last] = change["value"]
    return pod


def pod(*containers, labels=None, **spec):
    return {"metadata": {"labels": {"heap": "loam"} if labels is None else labels},
            "spec": {"containers": [{"name": "app", **container} for container in containers],
                     **spec}}


def changed(before):
    return applied(before, webhook.patch_of(before, IMAGE))


def preload(container):
    return [variable.get("value") for variable in container["env"]
            if variable["name"] == "LD_PRELOAD"]


class WebhookTests(unittest.TestCase):
    def test_a_pod_that_asks_gets_the_volume_and_the_preload(self):
        spec = changed(pod({}))["spec"]
        self.assertEqual(spec["volumes"], [{"name": "loam", "image": {"reference": IMAGE}}])
        self.assertEqual(preload(spec["containers"][0]), ["/loam/usr/lib/libloam.so"])
        self.assertEqual(spec["containers"][0]["volumeMounts"][0]["mountPath"], "/loam")

    def test_what_is_preloaded_stays_behind_the_heap(self):
        before = pod({"env": [{"name": "A", "value": "1"},
                              {"name": "LD_PRELOAD", "value": "/agent.so"}]})
        after = changed(before)["spec"]["containers"][0]
        self.assertEqual(preload(after), ["/loam/usr/lib/libloam.so:/agent.so"])
        self.assertEqual(after["env"][0], {"name": "A", "value": "1"})

    def test_an_empty_preload_is_none(self):
        self.assertEqual(preload(changed(pod({"env": [{
            "name": "LD_PRELOAD"}]}))["spec"]["containers"][0]),
                         ["/loam/usr/lib/libloam.so"])

    def test_init_containers_and_several_containers_are_changed(self):
        spec = changed(pod({}, {}, initContainers=[{"name": "first"}],
                           volumes=[{"name": "data"}]))["spec"]
        for container in spec["containers"] + spec["initContainers"]:
            self.assertEqual(len(preload(container)), 1)
        self.assertEqual([volume["name"] for volume in spec["volumes"]], ["data", "loam"])

    def test_who_did_not_ask_stays_as_he_is(self):
        self.assertEqual(webhook.patch_of(pod({}, labels={}), IMAGE), [])
        self.assertEqual(webhook.patch_of({"metadata": {}, "spec": {"containers": [{"name": "a"}]}},
                                          IMAGE), [])
        secret = {"env": [{"name": "LD_PRELOAD", "valueFrom": {"secretKeyRef": {}}}]}
        self.assertEqual(webhook.patch_of(pod(secret), IMAGE), [])

    def test_a_second_call_changes_nothing(self):
        self.assertEqual(webhook.patch_of(changed(pod({})), IMAGE), [])

    def test_the_answer_is_a_review_with_a_patch(self):
        review = {"apiVersion": "admission.k8s.io/v1", "request": {"uid": "1", "object": pod({})}}
        answer = webhook.answer(review, IMAGE)
        self.assertEqual((answer["kind"], answer["response"]["uid"], answer["response"]["allowed"]),
                         ("AdmissionReview", "1", True))
        self.assertEqual(json.loads(base64.b64decode(answer["response"]["patch"])),
                         webhook.patch_of(pod({}), IMAGE))
        review["request"]["object"] = pod({}, labels={})
        self.assertNotIn("patch", webhook.answer(review, IMAGE)["response"])


class ManifestTests(unittest.TestCase):
    def test_the_manifests_preload_what_they_mount(self):
        for name, library in (("image-volume.yaml", webhook.LIBRARY),
                              ("init-container.yaml", "/loam/libloam.so")):
            text = (FOLDER / name).read_text()
            self.assertEqual(re.findall(r"LD_PRELOAD, value: (\S+)}", text), [library], name)
            self.assertIn("mountPath: /loam, readOnly: true", text, name)

    def test_the_page_shows_a_part_of_the_manifest(self):
        page = (FOLDER.parents[1] / "docs/install.md").read_text()
        shown = re.search(r"## Kubernetes\n.*?```yaml\n(.*?)```", page, re.S)[1]
        manifest = (FOLDER / "image-volume.yaml").read_text().splitlines()
        for line in shown.splitlines():
            self.assertIn(line, manifest)

    def test_the_configuration_asks_for_the_webhooks_label(self):
        name, value = webhook.LABEL
        self.assertIn(f"matchLabels: {{{name}: {value}}}", (FOLDER / "webhook.yaml").read_text())


if __name__ == "__main__":
    unittest.main()
