// Colour maps as tables of 256 colours, so that a cell costs one look.

export const DIVERGING = 'red–blue';

const MAPS = {
  viridis: d3.interpolateViridis,
  cividis: d3.interpolateCividis,
  inferno: d3.interpolateInferno,
  turbo: d3.interpolateTurbo,
  [DIVERGING]: (at) => d3.interpolateRdBu(1 - at),
  greys: (at) => d3.interpolateGreys(1 - at),
};

export const names = Object.keys(MAPS);

export function table(name) {
  const map = MAPS[name] ?? MAPS.viridis;
  const colours = new Uint8ClampedArray(256 * 3);
  for (let i = 0; i < 256; i += 1) {
    const { r, g, b } = d3.rgb(map(i / 255));
    colours.set([r, g, b], i * 3);
  }
  return colours;
}

// Draws values row by row; what is no number stays see-through.
export function draw(canvas, values, rows, columns, [low, high], colours) {
  canvas.width = columns;
  canvas.height = rows;
  const image = new ImageData(columns, rows);
  const scale = high > low ? 256 / (high - low) : 0;
  for (let i = 0; i < values.length; i += 1) {
    const value = values[i];
    if (Number.isNaN(value)) continue;
    const index = Math.max(0, Math.min(255, Math.floor((value - low) * scale)));
    image.data[i * 4] = colours[index * 3];
    image.data[i * 4 + 1] = colours[index * 3 + 1];
    image.data[i * 4 + 2] = colours[index * 3 + 2];
    image.data[i * 4 + 3] = 255;
  }
  canvas.getContext('2d').putImageData(image, 0, 0);
}

export function ramp(canvas, colours) {
  const image = new ImageData(1, 256);
  for (let i = 0; i < 256; i += 1) {
    image.data.set([...colours.subarray((255 - i) * 3, (255 - i) * 3 + 3), 255], i * 4);
  }
  canvas.getContext('2d').putImageData(image, 0, 0);
}
