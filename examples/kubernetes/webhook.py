"""A mutating webhook that puts pods with the label `heap: loam` on Loam: webhook.py IMAGE
CERTIFICATE KEY [PORT].

Each container gets the image as a volume, and the library in front of what its LD_PRELOAD holds. A
container whose LD_PRELOAD comes from elsewhere (valueFrom) stays as it is, and so does a pod that
was changed already.
"""
import base64
import json
import ssl
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

LABEL = ("heap", "loam")
VOLUME, FOLDER = "loam", "/loam"
LIBRARY = f"{FOLDER}/usr/lib/libloam.so"


def patch_of(pod, image):
    """The changes that put the pod on Loam, as JSON Patch has them; none for a pod that did not
    ask."""
    name, value = LABEL
    spec = pod["spec"]
    asked = pod["metadata"].get("labels", {}).get(name) == value
    if not asked or any(volume["name"] == VOLUME for volume in spec.get("volumes", [])):
        return []
    changes = []
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(kind, [])):
            changes += changes_of(container, f"/spec/{kind}/{index}")
    if not changes:
        return []
    return [*appended(spec, "/spec", "volumes", {"name": VOLUME, "image": {"reference": image}}),
            *changes]


def changes_of(container, path):
    mount = appended(container, path, "volumeMounts",
                     {"name": VOLUME, "mountPath": FOLDER, "readOnly": True})
    for index, variable in enumerate(container.get("env", [])):
        if variable["name"] != "LD_PRELOAD":
            continue
        if "valueFrom" in variable:
            return []
        preloaded = variable.get("value", "")
        value = f"{LIBRARY}:{preloaded}" if preloaded else LIBRARY
        return [*mount, {"op": "add", "path": f"{path}/env/{index}/value", "value": value}]
    return [*mount, *appended(container, path, "env", {"name": "LD_PRELOAD", "value": LIBRARY})]


def appended(holder, path, name, entry):
    """A list that is not there is made with its first entry."""
    if holder.get(name):
        return [{"op": "add", "path": f"{path}/{name}/-", "value": entry}]
    return [{"op": "add", "path": f"{path}/{name}", "value": [entry]}]


def answer(review, image):
    request = review["request"]
    response = {"uid": request["uid"], "allowed": True}
    changes = patch_of(request["object"], image)
    if changes:
        patch = base64.b64encode(json.dumps(changes).encode()).decode()
        response |= {"patchType": "JSONPatch", "patch": patch}
    return {"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response}


def serve(image, certificate, key, port):
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body = json.dumps(answer(review, image)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = HTTPServer(("", port), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_forever()


if __name__ == "__main__":
    if len(sys.argv) not in (4, 5):
        sys.exit(__doc__)
    serve(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]) if len(sys.argv) == 5 else 8443)
