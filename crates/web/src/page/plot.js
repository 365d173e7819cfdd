// A plot of an answer: one column of numbers by its rows, or of two the second by the first.

import { axis, COLOURS } from './chart.js';
import { number } from './format.js';

const HEIGHT = 220;

// `null`: an answer of one row, or whose columns of numbers are none or more than two.
export function plotted(place, columns) {
  const found = columns.filter((column) => column.numbers);
  if (found.length < 1 || found.length > 2 || found[0].numbers.length < 2) return null;
  const [across, up] = found.length === 2 ? found : [null, found[0]];
  let pairs = up.numbers.map((value, row) => [across ? across.numbers[row] : row, value]);
  // What is null (or no number) has no place.
  pairs = pairs.filter(([x]) => x !== null);
  const isRising = pairs.every(([x], i) => i === 0 || x > pairs[i - 1][0]);
  // uPlot wants its x in order; where values repeat, points say more than a line that goes up and down.
  if (!isRising) pairs.sort(([a], [b]) => a - b);
  const isLine = pairs.every(([x], i) => i === 0 || x > pairs[i - 1][0]);
  const label = across ? across.name : 'row';
  const width = () => place.clientWidth;
  const chart = new uPlot(
    {
      width: width(),
      height: HEIGHT,
      scales: { x: { time: false } },
      axes: [axis((tick) => number(tick), { label, labelSize: 22, labelFont: '12px system-ui' }), axis((tick) => number(tick), { size: 84 })],
      series: [
        { label, value: (_, value) => (value == null ? '–' : number(value)) },
        {
          label: up.name,
          stroke: COLOURS[0],
          width: isLine ? 1.5 : 0,
          paths: isLine ? undefined : () => null,
          points: isLine ? {} : { show: true, size: 4, fill: COLOURS[0] },
          value: (_, value) => (value == null ? '–' : number(value)),
        },
      ],
    },
    [pairs.map(([x]) => x), pairs.map(([, y]) => y)],
    place,
  );
  return { resized: () => chart.setSize({ width: width(), height: HEIGHT }) };
}
