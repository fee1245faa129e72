// Attention in tiles, tile by tile: what is in fast memory, and what has crossed.
import { choice, number, rare, remembered, slider, time } from './figure.js';
import { bars, drawing, formula, shape, text } from './draw.js';

const [TOKENS, WIDTH] = [32, 4];
const [LEFT, TOP, CELL] = [96, 66, 8];
const PROGRAMS = ['naive', 'fused', 'strips', 'tiles'];

export default attention => {
    const masks = [attention.Mask.none(), attention.Mask.causal(), attention.Mask.window(4)];
    const walked = remembered((...walk) => {
        const tiles = new attention.TileWalk(TOKENS, WIDTH, ...walk.slice(0, 3), masks[walk[3]]);
        return { tiles, queries: tiles.queries, keys: tiles.keys, totals: tiles.totals };
    });
    const fitting = ({ capacity, queries, keys, mask }) => {
        try {
            return walked(capacity, queries, keys, mask);
        } catch {
            throw new Error(`Tiles of ${queries} × ${keys} don't fit into ${capacity} numbers: choose smaller blocks, or more memory.`);
        }
    };
    // Between the last tile of a block of queries and the first of the next one, an output is written.
    const outputs = state => {
        try {
            const blocks = [...fitting(state).queries];
            return blocks.flatMap((block, t) => block !== blocks[t + 1] ? [[t + 1, 'a block of the output is written']] : []);
        } catch {
            return [];
        }
    };
    return {
        controls: [
            time('done', 'tiles done', TOKENS * TOKENS, 12, { seconds: 14, moments: outputs }),
            slider('queries', 'queries in a block', 1, TOKENS, 1, 8, 0),
            slider('keys', 'keys in a block', 1, TOKENS, 1, 4, 0),
            rare(choice('mask', 'mask', ['none', 'causal', 'window of 4'])),
            rare(slider('capacity', 'fast memory in numbers', 20, 600, 10, 150, 0)),
        ],
        draw(state) {
            const { queries, keys, mask } = state;
            const tiles = fitting(state);
            const [ofQueries, ofKeys] = [tiles.queries, tiles.keys];
            const count = ofQueries.length;
            const done = Math.min(state.done, count);
            const seen = Math.ceil(done);
            const svg = drawing(480, 490, 'A walk over tiles of scores');
            const block = (i, size) => [CELL * i * size, CELL * (Math.min((i + 1) * size, TOKENS) - i * size)];
            const gap = Math.min(queries, keys) > 2 ? 1 : 0.5;
            const rect = (x, y, width, height, attributes) => svg.append(shape('rect', {
                x: x + gap, y: y + gap, width: width - 2 * gap, height: height - 2 * gap, ...attributes,
            }));
            const isOver = done === count;
            const here = seen > 0 && !isOver ? [ofQueries[seen - 1], ofKeys[seen - 1]] : [];
            for (let i = 0; i * queries < TOKENS; i += 1) {
                const [start, length] = block(i, queries);
                const stays = i === here[0];
                const isWritten = ofQueries.slice(0, seen).includes(i) && !ofQueries.slice(isOver ? count : seen - 1).includes(i);
                rect(LEFT - 40, TOP + start, 30, length, { fill: stays ? 'var(--role-q)' : 'none', stroke: 'var(--role-q)' });
                rect(LEFT + CELL * TOKENS + 10, TOP + start, 30, length, {
                    fill: stays || isWritten ? 'var(--fig-1)' : 'none', 'fill-opacity': isWritten ? 1 : 0.35, stroke: 'var(--fig-1)',
                });
            }
            for (let j = 0; j * keys < TOKENS; j += 1) {
                const [start, length] = block(j, keys);
                rect(LEFT + start, TOP - 40, length, 14, { fill: 'none', stroke: 'var(--role-k)' });
                rect(LEFT + start, TOP - 24, length, 14, { fill: 'none', stroke: 'var(--role-v)' });
            }
            for (let t = 0; t < count; t += 1) {
                const [[y, height], [x, width]] = [block(ofQueries[t], queries), block(ofKeys[t], keys)];
                // What is done is gone.
                const isDone = t < seen - 1 || isOver;
                rect(LEFT + x, TOP + y, width, height, isDone ? { fill: 'var(--fig-muted)', 'fill-opacity': 0.12 } : {
                    fill: 'none', stroke: 'var(--fig-muted)', 'stroke-width': gap,
                });
            }
            if (here.length) {
                // The next block of keys and values comes from the place of the last one.
                const [y, height] = block(here[0], queries);
                const [to, width] = block(here[1], keys);
                const follows = seen > 1 && ofQueries[seen - 2] === here[0];
                const from = follows ? block(ofKeys[seen - 2], keys)[0] : to;
                const x = from + (to - from) * Math.min((done - seen + 1) / 0.6, 1);
                rect(LEFT + x, TOP - 40, width, 14, { fill: 'var(--role-k)' });
                rect(LEFT + x, TOP - 24, width, 14, { fill: 'var(--role-v)' });
                rect(LEFT + x, TOP + y, width, height, { fill: 'var(--fig-1)' });
            }
            svg.append(
                formula(LEFT + CELL * TOKENS / 2, 12, 'keys K and values V'), formula(LEFT - 48, TOP + 128, 'Q', 'end'),
                formula(LEFT + CELL * TOKENS + 48, TOP + 128, 'O', 'start'),
                text(LEFT, 346, 'numbers moved between slow and fast memory', 'start'),
            );
            const totals = [...tiles.totals];
            const moved = tiles.tiles.moved(seen);
            const most = Math.max(...totals.filter(Number.isFinite));
            bars(svg, {
                left: LEFT, top: 358, width: 280, row: 30, most, digits: 0, labels: PROGRAMS.slice(0, 3),
                values: [...totals.slice(0, 3)].map(total => Number.isFinite(total) ? total : 0), colour: () => 'var(--fig-muted)',
            });
            const wide = share => 280 * share / most;
            svg.append(
                text(LEFT - 8, 463, PROGRAMS[3], 'end'),
                shape('rect', { x: LEFT, y: 452, width: wide(moved), height: 22, fill: 'var(--fig-1)' }),
                shape('rect', { x: LEFT, y: 452, width: wide(totals[3]), height: 22, fill: 'none', stroke: 'var(--fig-1)', 'stroke-dasharray': '4 3' }),
                text(LEFT + wide(totals[3]) + 8, 463, `${number(moved, 0)} so far, of ${number(totals[3], 0)}`, 'start'),
            );
            const which = PROGRAMS.filter((_, i) => !Number.isFinite(totals[i]));
            const isFirst = ofQueries[seen - 1] !== ofQueries[seen - 2];
            const isLast = ofQueries[seen - 1] !== ofQueries[seen];
            const comes = isFirst ? 'a block of queries comes, with its first keys and values' : 'the queries stay, and the next keys and values come';
            const told = seen === 0 ? 'Nothing has moved yet:' : isOver ? 'All tiles are done:'
                : `Tile ${seen} of ${count}: ${comes}${isLast ? ', and a block of the output is written' : ''}.`;
            return {
                svg,
                says: `${told} ${number(moved, 0)} of ${number(totals[3], 0)} numbers moved.`
                    + (which.length ? ` With so little fast memory, ${which.join(' and ')} can't run.` : '')
                    + (mask === 0 ? '' : ' The naive and the fused program compute what the mask hides, too.'),
                limits: { done: count },
            };
        },
    };
};
