'use strict';
// The picture's own script (inferno's) zooms and marks. It keeps its state in the page's address,
// which a page that is a file can not have.
window.get_params = () => ({});
window.parse_params = () => location.href;
window.search_prompt = () => document.getElementById('term').focus();

const unmark = () => {
  reset_search();
  searching = 0;
  document.getElementById('matched').classList.add('hide');
};

document.getElementById('find').addEventListener('submit', (event) => {
  event.preventDefault();
  const term = document.getElementById('term').value;
  const found = document.getElementById('found');
  unmark();
  found.textContent = '';
  if (term === '') return;
  let pattern = term;
  try {
    new RegExp(pattern);
  } catch {
    pattern = term.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
  }
  search(pattern);
  found.textContent = searching
    ? document.getElementById('matched').firstChild.nodeValue.replace('Matched: ', 'in these: ')
    : 'no frame that is shown has this name';
});
