'use strict';
// Elements, units and plots. Texts go in as texts.
const byId = (id) => document.getElementById(id);

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

// At most three digits.
const brief = (value) => (value < 100 ? Number(value.toFixed(1)) : Math.round(value));

function size(bytes) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let at = 0;
  while (bytes >= 1024 && at < units.length - 1) { bytes /= 1024; at += 1; }
  return `${brief(bytes)} ${units[at]}`;
}

function duration(us) {
  if (us < 1000) return `${brief(us)} µs`;
  return us < 1e6 ? `${brief(us / 1000)} ms` : `${brief(us / 1e6)} s`;
}

function span(seconds) {
  if (seconds < 90) return `${seconds} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return `${brief(seconds / 3600)} h`;
}

const twoDigits = (number) => String(number).padStart(2, '0');

// 01:09
const clock = (time) => `${twoDigits(time.getHours())}:${twoDigits(time.getMinutes())}`;

// 28 Nov 01:09
const moment = (time) =>
  `${time.getDate()} ${time.toLocaleString('en-US', { month: 'short' })} ${clock(time)}`;

const SPEED = { base: 1024, text: (bytes) => `${size(bytes)}/s` };
const LATENCY = { base: 1000, text: duration };
const SLOWNESS = { base: 1000, text: (ms) => duration(ms * 1000) };
const COUNT = { base: 1000, text: (count) => String(brief(count)) };
// A point of a plot covers so many seconds.
const STEP_S = 30;

// The end of an axis: a round number that can be halved.
function ceiling(most, base) {
  let unit = 1;
  while (most > unit * base) unit *= base;
  return unit * [2, 4, 10, 20, 40, 100, 200, 400, base].find((step) => unit * step >= most);
}

function axis(kind, labels) {
  const made = element('div', kind);
  made.append(...labels.map((label) => element('span', '', label)));
  return made;
}

// Times are seconds since 1970. Lines are [name, kind, values]; one alone needs no name. All have
// one scale.
function plot(title, unit, times, lines) {
  const most = ceiling(Math.max(...lines.flatMap(([, , values]) => values)), unit.base);
  const figure = element('figure');
  const caption = element('figcaption', '', `${title}: `);
  lines.forEach(([name, kind, values], at) => {
    const last = unit.text(values[values.length - 1]);
    caption.append(at ? '; ' : '', element('span', name && `line ${kind}`, `${name} ${last}`.trim()),
      `, at most ${unit.text(Math.max(...values))}`);
  });
  const [from, to] = [times[0], times[times.length - 1] + STEP_S];
  const svg = drawn('svg', { class: 'plot', viewBox: '0 0 1000 100', preserveAspectRatio: 'none',
    role: 'img', 'aria-label': title });
  svg.append(...[0, 50, 100].map((y) => drawn('line', { x1: 0, x2: 1000, y1: y, y2: y })));
  for (const [, kind, values] of lines) {
    const point = (time, value) =>
      `${(((time - from) / (to - from)) * 1000).toFixed(1)},${(100 - (value / most) * 100).toFixed(1)}`;
    const points = times.map((time, at) => point(time, values[at]));
    points.push(point(to, values[values.length - 1]));
    svg.append(drawn('polyline', { class: kind, points: points.join(' ') }));
  }
  const [begin, end] = [new Date(from * 1000), new Date(to * 1000)];
  const isToday = begin.toDateString() === end.toDateString();
  const chart = element('div', 'chart');
  chart.append(axis('y', [most, most / 2, 0].map(unit.text)), svg,
    axis('x', [isToday ? clock(begin) : moment(begin), `last ${span(to - from)}`, clock(end)]));
  figure.append(caption, chart);
  return figure;
}

// A disc with a tick, or with an exclamation mark: also without colours they differ.
function icon(kind) {
  const colours = { good: '#1a7f4b', work: '#0b62b8', warn: '#9a6700', bad: '#c0272d' };
  const tick = kind === 'good' || kind === 'work';
  const svg = drawn('svg', { viewBox: '0 0 32 32' });
  svg.append(drawn('circle', { cx: 16, cy: 16, r: 15, fill: colours[kind] || '#59616b' }),
    drawn('path', { d: tick ? 'M8 17l6 6 10-13' : 'M16 7v12M16 23v3', fill: 'none', stroke: '#fff', 'stroke-width': 4 }));
  return `data:image/svg+xml,${encodeURIComponent(new XMLSerializer().serializeToString(svg))}`;
}
