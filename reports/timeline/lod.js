// Level of detail: one row of pixels a track, whatever the zoom. Events narrower than a pixel are leapt over, so a
// frame costs about as many steps as there are pixels, not events.

// The first index in [low, high) whose `end` lies after `time`; `high` when there is none.
export function firstAfter(end, low, high, time) {
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (end[middle] > time) high = middle;
    else low = middle + 1;
  }
  return low;
}

// The same from `low` on, when it is probably near: steps that double, then a search between the last two.
export function leap(end, low, high, time) {
  let step = 1, reached = low;
  while (reached < high && end[reached] <= time) { low = reached + 1; reached += step; step *= 2; }
  return firstAfter(end, low, Math.min(reached + 1, high), time);
}

// Paint what `view` shows of a track into `pixels[at … at + width)`. `shade` numbers each event's colour in `colors`;
// colors[shade + 128] is the one of an event's last pixel, which keeps neighbours apart. Events of at least `least` px
// are handed to `wide(event, left, right)`.
export function paintTrack(data, track, view, width, shade, colors, pixels, at, least, wide) {
  const { start, end } = data, last = track.first + track.count;
  const scale = width / (view.to - view.from);
  let i = firstAfter(end, track.first, last, view.from);
  while (i < last) {
    const begin = (start[i] - view.from) * scale;
    if (begin >= width) break;
    const left = begin > 0 ? Math.floor(begin) : 0;
    const right = Math.min(width, Math.floor((end[i] - view.from) * scale));
    if (right - left <= 1) {
      pixels[at + left] = colors[shade[i]];
      i = Math.max(i + 1, leap(end, i, last, view.from + (left + 1) / scale));
      continue;
    }
    pixels.fill(colors[shade[i]], at + left, at + right);
    if (right - left > 3) pixels[at + right - 1] = colors[shade[i] + 128];
    if (right - left >= least) wide(i, left, right);
    i++;
  }
}
