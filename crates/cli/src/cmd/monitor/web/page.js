'use strict';
// Asks for the state again and again, and changes what has changed. Texts go in as texts.
const STATE_MS = 700;
const PLOTS_MS = 15000;
const byId = (id) => document.getElementById(id);
const shown = new Map();
let token = '';
let plots = {};

function element(tag, kind, text) {
  const made = document.createElement(tag);
  if (kind) made.className = kind;
  if (text !== undefined) made.textContent = text;
  return made;
}

function drawn(tag, attributes) {
  const made = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

function size(bytes) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let at = 0;
  while (bytes >= 1024 && at < units.length - 1) { bytes /= 1024; at += 1; }
  return `${at && bytes < 100 ? bytes.toFixed(1) : Math.round(bytes)} ${units[at]}`;
}

const speed = (bytes) => `${size(bytes)}/s`;

function span(seconds) {
  if (seconds < 90) return `${seconds} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}

// Does something only when what it is made from has changed.
function when(holder, key, value, make) {
  const text = JSON.stringify(value);
  if (holder[key] === text) return;
  holder[key] = text;
  make();
}

const KINDS = { 'in-sync': 'good', rebuilding: 'work', spare: 'idle', journal: 'idle' };
const tileKind = (state) =>
  state.includes('slow') || state.includes('want-replacement') ? 'warn' : KINDS[state[0]] || 'bad';

function stateKind(words) {
  if (words.includes('failed')) return 'bad';
  if (words.includes('degraded')) return 'warn';
  return words.some((word) => word.endsWith('ing')) ? 'work' : 'good';
}

async function act(array, verb, fields, question) {
  if (question && !confirm(question)) return;
  byId('news').textContent = '';
  const response = await fetch('/api/do', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', Authorization: `Bearer ${token}` },
    body: JSON.stringify({ array, verb, ...fields }),
  });
  const said = await response.json();
  if (!response.ok) byId('news').textContent = `${verb} ${array}: ${said.reason}; ${said.next}`;
  if (response.status === 401) { token = ''; byId('token').value = ''; byId('token').focus(); }
  update();
}

function button(text, press) {
  const made = element('button', '', text);
  made.type = 'button';
  made.addEventListener('click', press);
  return made;
}

function tile(array, member) {
  const made = element('li', `tile ${tileKind(member.state)}`);
  const role = member.role === null ? '' : `${member.role}: `;
  made.append(element('b', '', role + (member.device || 'nobody')));
  const errors = member.errors ? `, ${member.errors} errors` : '';
  made.append(element('small', '', member.state.join(', ') + errors));
  if (member.refused) made.append(element('small', '', member.refused));
  if (token && member.device) {
    const fields = { member: member.device };
    const about = `${member.device} of ${array}?`;
    if (['in-sync', 'rebuilding'].includes(member.state[0])) {
      made.append(button('Fail', () => act(array, 'fail', fields, `Fail ${about}`)));
      made.append(button('Replace', () =>
        act(array, 'replace', { ...fields, with: null }, `Copy ${member.device} to a spare, then fail it?`)));
    }
    if (['faulty', 'spare'].includes(member.state[0])) {
      made.append(button('Remove', () => act(array, 'remove', fields, `Remove ${about}`)));
    }
  }
  return made;
}

function duration(us) {
  if (us < 1000) return `${us} µs`;
  return us < 1e6 ? `${(us / 1000).toFixed(1)} ms` : `${(us / 1e6).toFixed(1)} s`;
}

// Lines are [name, kind, values]; one alone needs no name. All have one scale.
function plot(title, times, lines, text) {
  const figure = element('figure');
  const most = Math.max(1, ...lines.flatMap(([, , values]) => values));
  const caption = element('figcaption', '', `${title}: `);
  lines.forEach(([name, kind, values], at) => {
    const last = values.length ? values[values.length - 1] : 0;
    const highest = Math.max(0, ...values);
    caption.append(at ? '; ' : '', element('span', name && `line ${kind}`, `${name} ${text(last)}`.trim()), `, at most ${text(highest)}`);
  });
  figure.append(caption);
  const svg = drawn('svg', { class: 'plot', viewBox: '0 0 1000 100', preserveAspectRatio: 'none', role: 'img', 'aria-label': title });
  const to = times.length ? times[times.length - 1] : 0;
  const from = Math.max(times[0] || 0, to - 86400);
  const x = (time) => (to > from ? ((time - from) / (to - from)) * 1000 : 1000);
  for (const [, kind, values] of lines) {
    const points = times.map((time, at) => `${x(time).toFixed(1)},${(97 - (values[at] / most) * 94).toFixed(1)}`);
    if (points.length === 1) points.unshift(`0,${points[0].split(',')[1]}`);
    svg.append(drawn('polyline', { class: kind, points: points.join(' ') }));
  }
  figure.append(svg);
  return figure;
}

function drawPlots(view, name) {
  const own = plots[name];
  if (!own) return;
  when(view, 'plots', own, () => view.find('.plots').replaceChildren(
    plot('Users', own.time, [['read', 'work', own.read_bytes_s], ['write', 'good', own.write_bytes_s]], speed),
    plot('Latency', own.time, [['read', 'work', own.read_us], ['write', 'good', own.write_us], ['99 % within', 'warn', own.slow_us]], duration),
    plot('Errors', own.time, [['of members', 'bad', own.errors], ['of requests', 'warn', own.failed]], String),
    plot('Background work', own.time, [['', 'work', own.bytes_per_s]], speed),
    plot('Slowest member', own.time, [['', 'work', own.slow_ms]], (ms) => `${ms} ms`),
  ));
}

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

function drawSync(view, { sync }) {
  const running = sync.action !== 'idle';
  view.find('.sync').hidden = !running;
  if (!running) return;
  view.find('progress').value = sync.total_bytes ? sync.done_bytes / sync.total_bytes : 0;
  const percent = sync.total_bytes ? Math.floor((sync.done_bytes * 100) / sync.total_bytes) : 0;
  const left = sync.finish_s === null ? '' : `, ${span(sync.finish_s)} left`;
  const paused = sync.paused ? ', paused' : '';
  view.find('.sync p').textContent = `${sync.action}: ${percent} %, ${size(sync.bytes_per_s)}/s per member${left}${paused}`;
}

function commands(view, name) {
  const form = view.find('.commands');
  const limit = (field) => (form[field].value === '' ? null : Math.round(Number(form[field].value) * 1048576));
  const fields = {
    'sync-limits': () => ({ min_bytes_s: limit('min'), max_bytes_s: limit('max') }),
    add: () => ({ member: form.device.value, force: false }),
    'add-export': () => ({ export: form.export.value }),
  };
  for (const press of form.querySelectorAll('button')) {
    const { verb } = press.dataset;
    press.addEventListener('click', () => act(name, verb, (fields[verb] || (() => ({})))(),
      verb === 'repair' ? `Rewrite what differs in ${name}?` : null));
  }
  form.addEventListener('submit', (event) => event.preventDefault());
}

function view(name) {
  let own = shown.get(name);
  if (own) return own;
  const article = byId('array').content.firstElementChild.cloneNode(true);
  article.dataset.name = name;
  article.setAttribute('aria-label', name);
  own = { article, find: (selector) => article.querySelector(selector) };
  own.find('.name').textContent = name;
  commands(own, name);
  own.find('.stripes').addEventListener('toggle', update);
  byId('arrays').append(article);
  shown.set(name, own);
  return own;
}

function drawArray(array, name, inner) {
  const own = view(name);
  const state = own.find('.state');
  state.textContent = array.state.join(', ');
  state.className = `state ${stateKind(array.state)}`;
  const layout = array.layout ? ` ${array.layout}` : '';
  const chunk = array.chunk_bytes ? `, chunks of ${size(array.chunk_bytes)}` : '';
  own.find('.facts').textContent = `${array.level}${layout}, ${size(array.size_bytes)}, ${array.raid_devices} members${chunk}, ${array.consistency_policy}`;
  const trouble = [array.held_up, array.waiting && `${array.waiting.requests} requests wait: ${array.waiting.reason || ''}`].filter(Boolean);
  own.find('.trouble').hidden = trouble.length === 0;
  own.find('.trouble').textContent = trouble.join('; ');
  when(own, 'members', [array.members, token], () =>
    own.find('.tiles').replaceChildren(...array.members.map((member) => tile(name, member))));
  when(own, 'exports', [array.exports, token], () =>
    own.find('.exports').replaceChildren(...array.exports.map((text) => {
      const line = element('li', '', `${text} `);
      if (token) line.append(button('Remove', () => act(name, 'remove-export', { export: text, force: false }, `Remove ${text}?`)));
      return line;
    })));
  own.find('.commands').hidden = !token || inner;
  drawSync(own, array);
  if (!inner) drawPlots(own, name);
  if (own.find('.stripes').open) { drawWhole(own, array); drawMap(own, { ...array, name }); }
  array.children.forEach((child) => drawArray(child, `${name}/${child.name}`, true));
}

function names(arrays, before) {
  return arrays.flatMap((array) => [before + array.name, ...names(array.children, `${before}${array.name}/`)]);
}

function draw(state) {
  byId('host').textContent = state.host;
  byId('unlock').hidden = !state.writable;
  byId('none').hidden = state.arrays.length > 0;
  const there = new Set(names(state.arrays, ''));
  for (const [name, own] of shown) {
    if (!there.has(name)) { own.article.remove(); shown.delete(name); }
  }
  state.arrays.forEach((array) => drawArray(array, array.name, false));
  for (const [name, own] of shown) own.article.classList.toggle('silent', state.silent.includes(name));
  when(draw, 'nodes', state.nodes, () => {
    byId('nodes').hidden = state.nodes.length === 0;
    byId('nodes').querySelector('ul').replaceChildren(...state.nodes.map((node) => {
      const made = element('li', `tile ${node.members.every((of) => of.state === 'in-sync') ? 'good' : 'bad'}`);
      made.append(element('b', '', node.address));
      node.members.forEach((of) => made.append(element('small', '', `${of.array} ${of.role ?? ''}: ${of.state}`)));
      return made;
    }));
  });
  when(draw, 'events', state.events, () =>
    byId('events').replaceChildren(...state.events.map((event) => {
      const line = element('li');
      const time = element('time', '', new Date(event.time).toLocaleString());
      time.dateTime = event.time;
      line.append(time, ` ${event.event} ${event.array} ${event.member || ''}`);
      return line;
    })));
  if (state.silent.length) byId('news').textContent = `No answer from ${state.silent.join(', ')}`;
}

async function ask(path, take) {
  try {
    const response = await fetch(path);
    take(await response.json());
    if (byId('news').dataset.lost) { byId('news').textContent = ''; delete byId('news').dataset.lost; }
  } catch (error) {
    byId('news').textContent = `The monitor does not answer: ${error.message}`;
    byId('news').dataset.lost = 'yes';
  }
}

const update = () => ask('/api/state', draw);
const updatePlots = () => ask('/api/plots', (all) => { plots = all; });

byId('unlock').addEventListener('submit', (event) => {
  event.preventDefault();
  token = byId('token').value.trim();
  update();
});

async function forever(what, ms) {
  for (;;) {
    await what();
    await new Promise((done) => setTimeout(done, ms));
  }
}
forever(updatePlots, PLOTS_MS);
forever(update, STATE_MS);
