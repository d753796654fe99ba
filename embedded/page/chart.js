// Curves over time as SVG. Colours come from the style sheet: a curve's `tone` is a class.
//
// A chart is {curves, floor, unit, marks}. A curve is {name, points: [[seconds, value], …], tone, kind}, kind one of
// line, step, area (steps, filled) and level (one value for all time). `floor`: the axis reaches at least so high. `unit`: a
// function from a number to its text. `marks`: moments, as {time, text}, that get a vertical line.

const NS = 'http://www.w3.org/2000/svg';
const HEIGHT = 170, TOP = 10, BOTTOM = 22, LEFT = 46, RIGHT = 6;

function element(name, attributes = {}, text = '') {
  const made = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text) made.textContent = text;
  return made;
}

// The last value at or before a moment; null if it is older than `gap` seconds.
export function valueAt(points, time, gap) {
  let found = null;
  for (const [at, value] of points) {
    if (at > time) break;
    found = [at, value];
  }
  return found && time - found[0] <= gap ? found[1] : null;
}

// A round step between about `count` lines of an axis up to `most`.
function tick(most, count) {
  const raw = most / count, power = 10 ** Math.floor(Math.log10(raw));
  return power * [1, 2, 5, 10].find(factor => factor * power >= raw);
}

export function draw(svg, chart, view) {
  const width = svg.clientWidth || 480;
  const right = width - RIGHT, base = HEIGHT - BOTTOM;
  const values = chart.curves.flatMap(curve => curve.points.filter(([at]) => at >= view.start).map(([, value]) => value));
  const highest = Math.max(chart.floor, ...values);
  const step = Math.max(chart.whole ? 1 : 0, tick(highest, 4));
  const top = Math.ceil(highest / step - 1e-9) * step;
  const x = time => LEFT + (time - view.start) / (view.end - view.start) * (right - LEFT);
  const y = value => base - value / top * (base - TOP);
  svg.setAttribute('viewBox', `0 0 ${width} ${HEIGHT}`);
  svg.setAttribute('height', HEIGHT);
  svg.replaceChildren();
  for (let value = 0; value <= top + step / 2; value += step) {
    svg.append(element('line', {class: 'grid', x1: LEFT, x2: right, y1: y(value), y2: y(value)}));
    svg.append(element('text', {x: LEFT - 8, y: y(value) + 4, 'text-anchor': 'end'}, chart.unit(value)));
  }
  drawTimes(svg, view, x, right);
  if (chart.curves.every(curve => curve.tone === 'limit' || !curve.points.length)) {
    svg.append(element('text', {class: 'empty', x: (LEFT + right) / 2, y: (TOP + base) / 2, 'text-anchor': 'middle'}, 'no data yet'));
  }
  for (const {time, text} of chart.marks || []) {
    if (time < view.start) continue;
    const line = element('line', {class: 'mark', x1: x(time), x2: x(time), y1: TOP, y2: base});
    const sign = element('path', {class: 'sign', d: `M${x(time) - 4} ${TOP - 6}h8l-4 6z`});
    sign.append(element('title', {}, text));
    svg.append(line, sign);
  }
  for (const curve of chart.curves) {
    const stepped = curve.kind !== 'line';
    for (const run of runs(curve.points, view.start, curve.kind === 'level' ? Infinity : view.gap)) {
      const path = outline(run, x, y, stepped);
      if (curve.kind === 'area') {
        svg.append(element('path', {class: `area ${curve.tone}`, d: `${path}V${base}H${x(run[0][0])}Z`}));
      }
      svg.append(element('path', {class: `curve ${curve.tone}`, d: path}));
    }
  }
  if (view.hover !== null) {
    const at = x(view.hover), side = at > width / 2 ? 'end' : 'start';
    svg.append(element('line', {class: 'cursor', x1: at, x2: at, y1: TOP, y2: base}));
    svg.append(element('text', {class: 'cursor-time', x: at + (side === 'end' ? -5 : 5), y: TOP + 9, 'text-anchor': side}, clock(view.hover, true)));
  }
  svg.ontime = position => view.start + (position - LEFT) / (right - LEFT) * (view.end - view.start);
}

function drawTimes(svg, view, x, right) {
  const span = view.end - view.start;
  const room = Math.max(2, Math.floor((right - LEFT) / 80));
  const step = [15, 30, 60, 120, 300, 600, 900, 1800].find(seconds => span / seconds <= room) || 3600;
  for (let time = Math.ceil(view.start / step) * step; time <= view.end; time += step) {
    const end = x(time) > right - 20;
    svg.append(element('text', {x: x(time), y: HEIGHT - 6, 'text-anchor': end ? 'end' : 'middle'}, clock(time, step < 60)));
  }
}

// Pieces without a gap, cut to the view.
function runs(points, start, gap) {
  const found = [];
  for (const point of points) {
    if (point[0] < start) continue;
    const last = found.at(-1);
    if (last && point[0] - last.at(-1)[0] <= gap) last.push(point);
    else found.push([point]);
  }
  return found;
}

function outline(run, x, y, stepped) {
  let path = `M${x(run[0][0]).toFixed(1)} ${y(run[0][1]).toFixed(1)}`;
  for (const [time, value] of run.slice(1)) {
    path += stepped ? `H${x(time).toFixed(1)}V${y(value).toFixed(1)}` : `L${x(time).toFixed(1)} ${y(value).toFixed(1)}`;
  }
  return run.length > 1 ? path : `${path}h2`;
}

export function clock(time, seconds) {
  const options = {hour: '2-digit', minute: '2-digit', hourCycle: 'h23', ...(seconds ? {second: '2-digit'} : {})};
  return new Date(time * 1000).toLocaleTimeString('en-GB', options);
}
