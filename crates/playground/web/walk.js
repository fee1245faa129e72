// Attention in tiles, tile by tile: what is in fast memory, and what has crossed.
import { choice, number, slider } from './figure.js';
import { bars, drawing, shape, text } from './draw.js';

const [TOKENS, WIDTH] = [16, 4];
const [LEFT, TOP, CELL] = [96, 66, 16];
const PROGRAMS = ['naive', 'fused', 'strips', 'tiles'];

export const walk = attention => {
    const masks = [attention.Mask.none(), attention.Mask.causal(), attention.Mask.window(4)];
    const fitting = (capacity, queries, keys, mask) => {
        try {
            return new attention.TileWalk(TOKENS, WIDTH, capacity, queries, keys, masks[mask]);
        } catch {
            throw new Error(`Tiles of ${queries} × ${keys} don't fit into ${capacity} numbers: choose smaller blocks, or more memory.`);
        }
    };
    return {
        controls: [
            slider('done', 'how far, in per cent', 0, 100, 1, 38, 0),
            slider('queries', 'queries in a block', 1, 16, 1, 4, 0),
            slider('keys', 'keys in a block', 1, 16, 1, 4, 0),
            choice('mask', 'mask', ['none', 'causal', 'window of 4']),
            slider('capacity', 'fast memory in numbers', 20, 600, 10, 300, 0),
        ],
        draw({ done, queries, keys, mask, capacity }) {
            const tiles = fitting(capacity, queries, keys, mask);
            const [ofQueries, ofKeys] = [tiles.queries, tiles.keys];
            const seen = Math.round(done / 100 * ofQueries.length);
            const svg = drawing(480, 490, 'A walk over tiles of scores');
            const block = (i, size) => [CELL * i * size, CELL * (Math.min((i + 1) * size, TOKENS) - i * size)];
            const rect = (x, y, width, height, attributes) => svg.append(shape('rect', { x: x + 1, y: y + 1, width: width - 2, height: height - 2, ...attributes }));
            const here = seen > 0 ? [ofQueries[seen - 1], ofKeys[seen - 1]] : [];
            for (let i = 0; i * queries < TOKENS; i += 1) {
                const [start, length] = block(i, queries);
                const stays = i === here[0];
                const fill = { fill: stays ? 'var(--fig-1)' : 'none', stroke: 'var(--fig-1)' };
                rect(LEFT - 40, TOP + start, 30, length, fill);
                rect(LEFT + CELL * TOKENS + 10, TOP + start, 30, length, fill);
            }
            for (let j = 0; j * keys < TOKENS; j += 1) {
                const [start, length] = block(j, keys);
                rect(LEFT + start, TOP - 40, length, 30, { fill: j === here[1] ? 'var(--fig-2)' : 'none', stroke: 'var(--fig-2)' });
            }
            for (let t = 0; t < ofQueries.length; t += 1) {
                const [[y, height], [x, width]] = [block(ofQueries[t], queries), block(ofKeys[t], keys)];
                const current = t === seen - 1;
                rect(LEFT + x, TOP + y, width, height, {
                    fill: current ? 'var(--fig-3)' : 'var(--fig-muted)', 'fill-opacity': current ? 1 : t < seen ? 0.5 : 0.08,
                    stroke: 'var(--fig-muted)',
                });
            }
            svg.append(
                text(LEFT + CELL * TOKENS / 2, 12, 'keys and values'), text(LEFT - 48, TOP + 128, 'Q', 'end'),
                text(LEFT + CELL * TOKENS + 48, TOP + 128, 'O', 'start'), text(LEFT, 346, 'numbers moved, in all', 'start'),
            );
            const totals = [...tiles.totals];
            const fits = totals.map(total => Number.isFinite(total));
            bars(svg, {
                left: LEFT, top: 358, width: 280, row: 30, most: Math.max(...totals.filter(Number.isFinite)), digits: 0,
                labels: PROGRAMS, values: totals.map(total => Number.isFinite(total) ? total : 0),
                colour: i => i === 3 ? 'var(--fig-3)' : 'var(--fig-muted)',
            });
            const which = PROGRAMS.filter((_, i) => !fits[i]);
            return {
                svg,
                says: `${seen} of ${ofQueries.length} tiles done; ${number(tiles.moved(seen), 0)} of ${number(totals[3], 0)} numbers moved.`
                    + (which.length ? ` With so little fast memory, ${which.join(' and ')} can't run.` : '')
                    + (mask === 0 ? '' : ' The naive and the fused program compute what the mask hides, too.'),
            };
        },
    };
};
