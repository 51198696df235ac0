'use strict';
// Asks for the state again and again, and changes what has changed.
const STATE_MS = 700;
const PLOTS_MS = 15000;
const shown = new Map();
let token = '';
let plots = {};

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

function arrayKind({ state, waiting }) {
  if (state.includes('failed') || waiting) return 'bad';
  if (state.includes('degraded')) return 'warn';
  return state.some((word) => word.endsWith('ing')) ? 'work' : 'good';
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

function button(text, kind, press) {
  const made = element('button', kind, text);
  made.type = 'button';
  made.addEventListener('click', press);
  return made;
}

// The process of the outer array obeys for those within it.
const served = (name) => name.split('/')[0];

function memberButtons(name, { device, state }) {
  const array = served(name);
  const made = element('div', 'buttons');
  const add = (text, kind, fields, question) => made.append(button(text, kind, () =>
    act(array, text.toLowerCase(), { member: device, ...fields }, question)));
  if (['in-sync', 'rebuilding'].includes(state[0])) {
    add('Replace', '', { with: null }, `Replace ${device} of array ${array}: copy it to a spare, then fail it?`);
    add('Fail', 'danger', {}, `Fail ${device} of array ${array}? It is used no more, and redundancy is lost until another member is rebuilt.`);
  }
  if (['faulty', 'spare'].includes(state[0])) {
    add('Remove', 'danger', {}, `Remove ${device} from array ${array}?`);
  }
  return made;
}

function tile(name, member) {
  const made = element('li', `tile ${tileKind(member.state)}`);
  const role = member.role === null ? '' : `${member.role}: `;
  made.append(element('b', '', role + (member.device || 'no device')));
  const errors = member.errors ? `, ${member.errors} errors` : '';
  made.append(element('small', '', member.state.join(', ') + errors));
  if (member.refused) made.append(element('small', '', member.refused));
  if (token && member.device) made.append(memberButtons(name, member));
  return made;
}

// A lost member is listed twice: its role lacks a member, and its device has no role any more. One
// tile shows both.
function merged(members) {
  const isLost = ({ state }) => state[0] === 'faulty' || state[0] === 'absent';
  const isMissing = ({ state }) => state[0] === 'missing';
  const lost = members.filter(isLost);
  const missing = members.filter(isMissing);
  const rows = members.filter((member) => !isLost(member) && !isMissing(member));
  const unknown = missing.filter(({ role }) => {
    const at = lost.findIndex(({ number }) => number === role);
    if (at >= 0) rows.push({ ...lost.splice(at, 1)[0], role });
    return at < 0;
  });
  if (unknown.length === 1 && lost.length === 1) lost[0] = { ...lost[0], role: unknown[0].role };
  rows.push(...lost, ...unknown.slice(lost.length));
  const place = ({ role }) => role ?? Infinity;
  return rows.sort((a, b) => (place(a) < place(b) ? -1 : Number(place(a) > place(b))));
}

const PLOTS = [
  ['Users', SPEED, [['read', 'work', 'read_bytes_s'], ['write', 'good', 'write_bytes_s']]],
  ['Latency', LATENCY, [['read', 'work', 'read_us'], ['write', 'good', 'write_us'], ['99 % within', 'warn', 'slow_us']]],
  ['Errors in 30 s', COUNT, [['of members', 'bad', 'errors'], ['of requests', 'warn', 'failed']]],
  ['Background work, per member', SPEED, [['', 'work', 'bytes_per_s']]],
  ['Slowest member', SLOWNESS, [['', 'work', 'slow_ms']]],
];

function drawPlots(view, name) {
  const own = plots[name];
  if (!own) return;
  when(view, 'plots', own, () => {
    const moved = PLOTS.filter(([, , lines]) => lines.some(([, , key]) => own[key].some((value) => value > 0)));
    const figures = moved.map(([title, unit, lines]) =>
      plot(title, unit, own.time, lines.map(([text, kind, key]) => [text, kind, own[key]])));
    const since = moment(new Date(own.time[0] * 1000));
    const quiet = element('p', '', `No reads, writes, errors or background work since ${since}.`);
    view.find('.plots').replaceChildren(...(moved.length ? figures : [quiet]));
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
  const shape = (of) => `${of.level} of ${of.raid_devices}`;
  const shapes = sync.from ? ` (old: ${shape(sync.from)}, new: ${shape(sync.to)})` : '';
  view.find('.sync p').textContent = `${sync.action}: ${percent} %${shapes}, ${size(sync.bytes_per_s)}/s per member${left}${paused}`;
}

// 28 Nov 01:09: 48 sectors differ; next: braid repair NAME
function checked(array, name) {
  const { action } = array.sync;
  const found = (count) => `${count || 'no'} sectors differ`;
  if (action === 'check' || action === 'repair') return `${action} under way: ${found(array.mismatches)} so far`;
  const last = array.last_check;
  if (!last) return '';
  const count = last.mismatched_sectors;
  const ended = `last ${last.kind} ${moment(new Date(last.at))}`;
  if (!last.complete) return `${ended}: not complete, ${found(count)} so far; next: braid ${last.kind} ${served(name)}`;
  if (last.kind === 'repair' && count) return `${ended}: ${count} sectors differed and were rewritten`;
  const next = count ? `; next: braid repair ${served(name)}` : '';
  return `${ended}: ${found(count)}${next}`;
}

const MIB = 1048576;
// More is no limit: the numbers of a browser end here.
const NO_LIMIT = Number.MAX_SAFE_INTEGER;

function drawLimits(view, { sync }) {
  const form = view.find('.commands');
  const limits = { min: sync.min_bytes_per_s, max: sync.max_bytes_per_s };
  for (const [name, bytes] of Object.entries(limits)) {
    const text = bytes === null || bytes >= NO_LIMIT ? '' : String(Number((bytes / MIB).toFixed(3)));
    const field = form[name];
    // What is being typed stays.
    if (field.value === field.defaultValue && field.value !== text) field.value = text;
    field.defaultValue = text;
  }
}

function commands(view, name) {
  const form = view.find('.commands');
  // An unchanged limit is left as it is, with those of other times of the day.
  const limit = ({ value, defaultValue }, none) => {
    if (value === defaultValue) return null;
    return value === '' ? none : Math.round(Number(value) * MIB);
  };
  const fields = {
    'sync-limits': () => ({ min_bytes_s: limit(form.min, 0), max_bytes_s: limit(form.max, NO_LIMIT) }),
    add: () => ({ member: form.device.value, force: false }),
    'add-export': () => ({ export: form.export.value }),
  };
  const devices = () => view.devices.join(', ');
  const questions = { repair: () => `Repair array ${name}: rewrite what differs on ${devices()}?` };
  for (const press of form.querySelectorAll('button')) {
    const { verb } = press.dataset;
    press.addEventListener('click', () => {
      if (verb === 'sync-limits' && !form.reportValidity()) return;
      act(name, verb, (fields[verb] || (() => ({})))(), questions[verb] && questions[verb]());
    });
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
  const kind = arrayKind(array);
  own.article.className = kind;
  own.find('.state').textContent = array.state.join(', ');
  own.find('.state').className = `state ${kind}`;
  const layout = array.layout ? ` ${array.layout}` : '';
  const chunk = array.chunk_bytes ? `, chunks of ${size(array.chunk_bytes)}` : '';
  own.find('.facts').textContent = `${array.level}${layout}, ${size(array.size_bytes)}, ${array.raid_devices} members${chunk}, ${array.consistency_policy}`;
  const trouble = [array.held_up, array.waiting && `${array.waiting.requests} requests wait: ${array.waiting.reason || ''}`];
  own.find('.trouble').textContent = trouble.filter(Boolean).join('; ');
  const lastCheck = checked(array, name);
  own.find('.checked').textContent = lastCheck;
  const outlook = [array.may_fail, array.next && `next: ${array.next}`].filter(Boolean).join('; ');
  own.find('.outlook').textContent = /degraded|failed/.test(array.state) ? outlook : '';
  own.find('.see').textContent = array.ids.length ? `see: braid help ${array.ids.join(' ')}` : '';
  own.find('.checked').classList.toggle('differs', lastCheck.includes('; next: '));
  own.devices = array.members.filter(({ device, role }) => device && role !== null).map(({ device }) => device);
  // Counters of I/O change all the time: a tile drawn anew would take the click from its buttons.
  const members = merged(array.members).map(({ role, device, state, errors, refused }) =>
    ({ role, device, state, errors, refused }));
  when(own, 'members', [members, token], () =>
    own.find('.tiles').replaceChildren(...members.map((member) => tile(name, member))));
  when(own, 'exports', [array.exports, token], () =>
    own.find('.exports').replaceChildren(...array.exports.map((text) => {
      const line = element('li', '', `${text} `);
      if (token) line.append(button('Remove', 'danger', () => act(name, 'remove-export', { export: text, force: false }, `Remove export ${text} of array ${name}?`)));
      return line;
    })));
  own.find('.commands').hidden = !token || inner;
  drawLimits(own, array);
  drawSync(own, array);
  if (!inner) drawPlots(own, name);
  if (own.find('.stripes').open) { drawWhole(own, array); drawMap(own, { ...array, name }); }
  array.children.forEach((child) => drawArray(child, `${name}/${child.name}`, true));
}

function names(arrays, before) {
  return arrays.flatMap((array) => [before + array.name, ...names(array.children, `${before}${array.name}/`)]);
}

// Puts the articles into this order. Only those out of place move: the others keep the focus.
function arrange(order) {
  let next = byId('arrays').firstElementChild;
  for (const name of order) {
    const { article } = shown.get(name);
    if (article === next) next = next.nextElementSibling;
    else byId('arrays').insertBefore(article, next);
  }
}

const WORST = { failed: 'bad', degraded: 'warn', busy: 'work', well: 'good' };

// In the title and the icon of the tab, and on top of the page.
function summarize(host, text, kind) {
  when(summarize, 'made', [host, text, kind], () => {
    document.title = `${text} · ${host || 'Braid'}`;
    byId('icon').href = icon(kind);
    byId('summary').textContent = text;
    byId('summary').className = kind;
  });
}

function draw(state) {
  byId('host').textContent = state.host;
  byId('unlock').hidden = !state.writable;
  byId('none').hidden = state.summary.all > 0;
  const { well, all, worst } = state.summary;
  summarize(state.host, all ? `${well} of ${all} well` : 'no arrays', WORST[worst]);
  const order = names(state.arrays, '');
  for (const [name, own] of shown) {
    if (!order.includes(name)) { own.article.remove(); shown.delete(name); }
  }
  state.arrays.forEach((array) => drawArray(array, array.name, false));
  arrange(order);
  byId('silent').textContent = state.silent.length ? `No answer from ${state.silent.join(', ')}` : '';
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
      const at = new Date(event.time);
      const time = element('time', '', `${moment(at)}:${twoDigits(at.getSeconds())}`);
      time.dateTime = event.time;
      const what = event.member || event.change || '';
      line.append(time, element('b', '', event.event), ` ${event.array} ${what} ${event.id || ''}`);
      return line;
    })));
}

async function ask(path, take) {
  try {
    take(await (await fetch(path)).json());
  } catch (error) {
    byId('silent').textContent = `The monitor does not answer: ${error.message}`;
    summarize(byId('host').textContent, 'no answer', 'idle');
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
