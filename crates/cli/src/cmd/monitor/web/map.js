'use strict';
// Where data and parity of an array lie, and how far background work is.
async function drawMap(view, array) {
  if (!view.map) {
    const response = await fetch(`/api/map?array=${encodeURIComponent(array.name)}`);
    view.map = response.ok ? await response.json() : { cells: [], rows: 0 };
  }
  const state = new Map();
  for (const member of array.members) {
    if (member.role !== null) state.set(member.role, member.state[0]);
  }
  when(view, 'stripes', [...state], () => {
    const head = element('tr');
    head.append(element('th', '', 'stripe'));
    for (let role = 0; role < array.raid_devices; role += 1) head.append(element('th', '', role));
    const rows = [head];
    const cells = new Map(view.map.cells.map((cell) => [`${cell.row} ${cell.member}`, cell]));
    for (let row = 0; row < Math.min(view.map.rows, 34); row += 1) {
      const line = element('tr');
      line.append(element('th', '', row));
      for (let role = 0; role < array.raid_devices; role += 1) {
        const cell = cells.get(`${row} ${role}`);
        const name = { data: 'D', copy: 'C', parity: 'P', q: 'Q', diag: 'X' };
        const word = state.get(role) || 'missing';
        const lost = { 'in-sync': '', rebuilding: ' rebuilt' }[word] ?? ' lost';
        line.append(element('td', cell ? cell.kind + lost : lost, cell ? name[cell.kind] + (cell.kind === 'data' || cell.kind === 'copy' ? cell.index : '') : ''));
      }
      rows.push(line);
    }
    view.find('table').replaceChildren(...rows);
    const kinds = new Set(view.map.cells.map((cell) => cell.kind));
    for (const kind of ['data', 'copy', 'parity', 'q', 'diag']) {
      view.find(`.cells .${kind}`).parentElement.hidden = !kinds.has(kind);
    }
  });
}

function drawWhole(view, array) {
  const { sync, bitmap } = array;
  const running = sync.action !== 'idle';
  const done = running && sync.total_bytes ? sync.done_bytes / sync.total_bytes : 1;
  when(view, 'whole', [done, array.mismatch_ranges, bitmap], () => {
    const part = (kind, from, to) => drawn('rect', { class: kind, x: from * 1000, y: 0, width: Math.max((to - from) * 1000, 2), height: 24 });
    const places = array.mismatch_ranges.map((place) => {
      const at = place.array_offset_bytes / array.size_bytes;
      return part('mismatch', at, at + place.bytes / array.size_bytes);
    });
    const parts = bitmap ? bitmap.marks : [];
    const most = parts.length && Math.ceil(bitmap.bits / parts.length);
    const marked = parts.flatMap((count, at) => {
      if (!count) return [];
      const mark = part('mark', at / parts.length, (at + 1) / parts.length);
      const height = Math.max((count / most) * 12, 3);
      mark.setAttribute('y', 24 - height);
      mark.setAttribute('height', height);
      return [mark];
    });
    view.find('.whole').replaceChildren(part('rest', 0, 1), ...(running ? [part('done', 0, done)] : []), ...marked, ...places);
    const marks = bitmap ? `${bitmap.dirty_bits} of ${bitmap.bits} regions of ${size(bitmap.chunk_bytes)} are marked as being written, those at the bottom` : 'No bitmap marks what is being written';
    const work = running ? `; ${sync.action} has done what is filled` : '';
    const wrong = places.length ? `; the last check found differences in ${places.length} places` : '';
    view.find('.marks').textContent = `${marks}${work}${wrong}.`;
  });
}
