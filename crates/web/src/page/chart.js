// What all charts of the page look like.

export const COLOURS = ['#2f9dbd', '#3fa796', '#e08a3c', '#9b6fd0', '#c9556b'];
const LINE = 'rgba(128, 145, 155, 0.22)';

// `told`: a tick's text.
export function axis(told, more = {}) {
  const stroke = getComputedStyle(document.body).getPropertyValue('color');
  const line = { stroke: LINE, width: 1 };
  return { stroke, grid: line, ticks: line, font: '11px system-ui', values: (_, ticks) => ticks.map(told), ...more };
}
