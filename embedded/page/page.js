// Asks for the document of a service again and again, and shows it.

import {clock, draw, valueAt} from './chart.js';

const POLL = 2000;
const RESCALED = ['SuccessfulRescale'];
const by = id => document.getElementById(id);
const state = {minutes: 15, service: null, data: null, hover: null, missed: 0};

// Units ---------------------------------------------------------------------------------------------------------------

const short = value => value >= 10000 ? `${+(value / 1000).toFixed(1)}k` : value >= 10 || Number.isInteger(value) ? `${Math.round(value)}` : `${+value.toFixed(1)}`;
const percent = value => `${+value.toFixed(value < 10 ? 1 : 0)} %`;
const seconds = value => value === 0 ? '0' : value < 1 ? `${Math.round(value * 1000)} ms` : `${+value.toFixed(value < 10 ? 1 : 0)} s`;
const span = value => value % 60 ? `${value} s` : `${value / 60} min`;
const plural = (count, one, many) => `${short(count)} ${count === 1 ? one : many}`;

// Panels --------------------------------------------------------------------------------------------------------------

// What each panel draws, from a document: {title, note, wide, unit, floor, curves, marks}.
function panels(data) {
  const {service, series, events} = data, scaling = service.scaling;
  const demand = scaling?.thresholds.demand, kv = scaling?.thresholds['kv-cache'];
  const level = value => [[data.now - 60 * data.minutes, value], [data.now, value]];
  const rescaled = events.filter(event => RESCALED.includes(event.reason)).map(event => ({time: event.time, text: event.message}));
  const total = sum(series.running, series.waiting);
  const list = [
    {
      title: 'Replicas', wide: true, whole: true, unit: short, floor: Math.max(2, scaling?.most ?? 0), marks: rescaled,
      note: scaling
        ? `Between ${scaling.least} and ${scaling.most}. Marks are decisions of the autoscaler (HPA); of equal ones, the latest. A replica ends when demand has been low for ${span(scaling.window)}.`
        : 'This service does not scale.',
      curves: [
        {name: 'ready', points: series.ready, tone: 'one', kind: 'area'},
        {name: 'desired', points: series.desired, tone: 'two', kind: 'step'},
      ],
    },
    {
      title: 'Requests', unit: short, floor: 4,
      note: demand ? `Above the line, ${short(demand)} a desired replica, another one is asked for.` : 'In flight, in all replicas.',
      curves: [
        {name: 'running and waiting', points: total, tone: 'two', kind: 'area'},
        {name: 'running', points: series.running, tone: 'one', kind: 'area'},
        ...(demand ? [{name: 'threshold', points: series.desired.map(([at, count]) => [at, count * demand]), tone: 'limit', kind: 'step'}] : []),
      ],
    },
    {
      title: 'KV cache in use', unit: percent, floor: 100,
      note: kv ? `Mean of the replicas. Above ${percent(kv)} another replica is asked for.` : 'Mean of the replicas.',
      curves: [
        {name: 'in use', points: series.kv, tone: 'one', kind: 'area'},
        ...(kv ? [{name: 'threshold', points: level(kv), tone: 'limit', kind: 'level'}] : []),
      ],
    },
    {
      title: 'Time to first token', unit: seconds, floor: 0.01, note: 'Of the last 30 s, as the engine measures it; time in its queue included.',
      curves: [
        {name: 'p50', points: series.ttft50, tone: 'one', kind: 'line'},
        {name: 'p99', points: series.ttft99, tone: 'two', kind: 'line'},
      ],
    },
    {
      title: 'Tokens per second', unit: short, floor: 10, note: 'Mean of the last 30 s, all replicas.',
      curves: [
        {name: 'generated', points: series.generated, tone: 'one', kind: 'line'},
        {name: 'read (prompts)', points: series.prompt, tone: 'quiet', kind: 'line'},
      ],
    },
  ];
  for (const panel of list) for (const curve of panel.curves) curve.points = curve.points || [];
  return list;
}

function sum(one = [], other = []) {
  const values = new Map(other);
  return one.filter(([at]) => values.has(at)).map(([at, value]) => [at, value + values.get(at)]);
}

function show(data) {
  const view = {start: data.now - 60 * data.minutes, end: data.now, gap: Math.max(30, 3 * data.step), hover: state.hover};
  panels(data).forEach((panel, index) => {
    const box = by('panels').children[index] || newPanel();
    box.className = panel.wide ? 'panel wide' : 'panel';
    box.querySelector('h2').textContent = panel.title;
    box.querySelector('.note').textContent = panel.note;
    const svg = box.querySelector('svg');
    draw(svg, panel, view);
    const entries = panel.curves.map(curve => {
      const value = curve.kind === 'level' ? curve.points[0][1] : valueAt(curve.points, state.hover ?? data.now, view.gap);
      return {...curve, text: value === null ? '–' : panel.unit(value)};
    });
    box.querySelector('.legend').replaceChildren(...entries.map(legend));
    svg.setAttribute('aria-label', `${panel.title}: ${entries.map(entry => `${entry.name} ${entry.text}`).join(', ')}`);
  });
}

function legend({name, tone, kind, text}) {
  const made = document.createElement('span'), sign = document.createElement('i'), value = document.createElement('b');
  sign.className = `${tone} ${kind}`;
  value.textContent = text;
  made.append(sign, `${name} `, value);
  return made;
}

function newPanel() {
  const box = document.createElement('section');
  box.innerHTML = '<header><h2></h2><div class="legend"></div></header><p class="note"></p><svg role="img"></svg>';
  const svg = box.querySelector('svg');
  svg.addEventListener('pointermove', event => {
    const time = svg.ontime(event.clientX - svg.getBoundingClientRect().left);
    state.hover = Math.min(state.data.now, Math.max(state.data.now - 60 * state.data.minutes, time));
    show(state.data);
  });
  svg.addEventListener('pointerleave', () => { state.hover = null; show(state.data); });
  by('panels').append(box);
  return box;
}

// Words ---------------------------------------------------------------------------------------------------------------

function summary({service, series, now, step}) {
  const {desired, ready, asked, scaling} = service;
  const latest = points => valueAt(points || [], now, Math.max(30, 3 * step));
  const running = latest(series.running), waiting = latest(series.waiting);
  const count = ready === desired ? plural(ready, 'replica is ready.', 'replicas are ready.') : `${ready} of ${desired} desired replicas are ready.`;
  if (running === null || waiting === null) return `${count} There are no figures of the engine yet.`;
  if (running + waiting === 0) return `${count} No request is in flight.`;
  const flight = `${plural(running, 'request runs', 'requests run')}, ${plural(waiting, 'waits', 'wait')}.`;
  if (!scaling || asked === null) return `${count} ${flight}`;
  const most = asked > scaling.most ? `, and ${scaling.most} are allowed` : '';
  return `${count} ${flight} At ${short(scaling.thresholds.demand)} a replica they ask for ${plural(asked, 'replica', 'replicas')}${most}.`;
}

function showEvents(events) {
  const items = events.map(event => {
    const item = document.createElement('li'), time = document.createElement('time');
    const reason = document.createElement('b'), text = document.createElement('div'), about = document.createElement('small');
    item.className = event.warning ? 'warning' : RESCALED.includes(event.reason) ? 'scaling' : '';
    time.textContent = clock(event.time, true);
    reason.textContent = event.reason;
    about.textContent = event.object + (event.count > 1 ? `, ${event.count} times` : '');
    text.append(event.message, about);
    item.append(time, reason, text);
    return item;
  });
  if (!items.length) {
    const none = document.createElement('li');
    none.textContent = 'None yet. Kubernetes keeps events for an hour.';
    none.className = 'none';
    items.push(none);
  }
  by('events').querySelector('ol').replaceChildren(...items);
}

function notice(title, text, bad = false) {
  const box = by('notice');
  box.hidden = !title;
  box.className = bad ? 'bad' : '';
  box.querySelector('h2').textContent = title;
  // `like this`: what to type
  box.querySelector('p').replaceChildren(...text.split('`').map((part, index) => {
    if (index % 2 === 0) return part;
    const code = document.createElement('code');
    code.textContent = part;
    return code;
  }));
}

function showServices(data) {
  const select = by('services');
  select.hidden = data.services.length < 2;
  if (select.dataset.names !== data.services.join()) {
    select.dataset.names = data.services.join();
    select.replaceChildren(...data.services.map(name => new Option(name, name)));
  }
  select.value = data.service.id;
}

// The loop ------------------------------------------------------------------------------------------------------------

function render(data) {
  document.body.dataset.state = data.down ? 'down' : data.service ? 'live' : 'empty';
  by('content').hidden = by('controls').hidden = !data.service;
  if (data.down) {
    notice('There is nothing to show', `${data.down[0].toUpperCase()}${data.down.slice(1)}. This page follows by itself.`, true);
    return;
  }
  if (!data.service) {
    notice('No service is deployed', 'The platform runs, and holds no service yet. `./dev up` deploys those of the stack.');
    return;
  }
  state.data = data;
  notice(data.problems.length ? 'Something is missing' : '', data.problems.join('\n'));
  by('name').textContent = data.service.name;
  by('about').textContent = `${data.service.runtime} in namespace ${data.service.namespace}, on this machine`;
  document.title = `${data.service.name}: ${data.service.ready} of ${data.service.desired} replicas`;
  by('summary').textContent = summary(data);
  showServices(data);
  show(data);
  showEvents(data.events);
}

async function ask() {
  const query = new URLSearchParams({minutes: state.minutes, ...(state.service ? {service: state.service} : {})});
  try {
    const answer = await fetch(`data.json?${query}`);
    if (!answer.ok) throw new Error(await answer.text());
    render(await answer.json());
    state.missed = 0;
  } catch (error) {
    state.missed += 1;
    if (state.missed > 1) {
      document.body.dataset.state = 'stale';
      notice('This page is not live any more', 'Its server has ended. `./dev status --web` starts it again.', true);
    }
  }
}

async function follow() {
  await ask();
  setTimeout(follow, POLL);
}

for (const input of document.querySelectorAll('input[name=minutes]')) {
  input.addEventListener('change', () => { state.minutes = Number(input.value); ask(); });
}
by('services').addEventListener('change', event => { state.service = event.target.value; ask(); });
addEventListener('resize', () => state.data && show(state.data));
follow();
