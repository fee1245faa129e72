// Ring attention on four ranks: who holds which keys at each step, and which pairs of a query and a key each rank computes then.
import { choice, number, remembered, time } from './figure.js';
import { drawing, shape, text } from './draw.js';

const [TOKENS, RANKS] = [16, 4];
const LAYOUTS = ['contiguous', 'zigzag', 'striped'];
const COLOURS = ['var(--fig-1)', 'var(--fig-2)', 'var(--fig-3)', 'var(--fig-muted)'];
const [LEFT, TOP, CELL] = [44, 44, 15];
const [RIGHT, BOX, ROW] = [322, 34, 62];

/** Who has less to do than the busiest rank. */
const waits = (pairs, most) => {
    const ranks = pairs.flatMap((of, rank) => of < most ? [rank] : []);
    return ranks.length === 0 ? ', as do all others' : ranks.length === 1 ? `, and rank ${ranks[0]} waits` : `, and ranks ${ranks.join(', ')} wait`;
};

export default attention => {
    const masks = [attention.Mask.none(), attention.Mask.causal()];
    const walked = remembered((layout, mask) => {
        const walk = new attention.RingWalk(TOKENS, RANKS, layout, masks[mask]);
        const ranks = [...Array(RANKS).keys()];
        const owner = Array(TOKENS).fill(0);
        ranks.forEach(rank => walk.rows(rank).forEach(row => {
            owner[row] = rank;
        }));
        return { owner, balance: walk.balance, pairs: ranks.map(rank => ranks.map(step => walk.pairs(rank, step))) };
    });
    return {
        controls: [
            time('steps', 'steps', RANKS, 2, { seconds: 14 }),
            choice('layout', 'rows', LAYOUTS),
            choice('mask', 'mask', ['none', 'causal'], 1),
        ],
        draw({ steps, layout, mask }) {
            const { owner, balance, pairs } = walked(layout, mask);
            const done = Math.min(Math.floor(steps + 1e-9), RANKS);
            const share = done === RANKS ? 0 : steps - done;
            const step = share > 0 ? done : Math.max(done - 1, 0); // the one that is shown
            const svg = drawing(480, 300, 'Ring attention on four ranks');
            // At a step each rank has the keys of the rank that many places before.
            const when = (i, j) => (owner[i] - owner[j] + RANKS) % RANKS;
            const paths = new Map();
            const strips = [];
            for (let i = 0; i < TOKENS; i += 1) {
                strips.push(
                    shape('rect', { x: LEFT - 14, y: TOP + CELL * i, width: 9, height: CELL - 1, fill: COLOURS[owner[i]] }),
                    shape('rect', { x: LEFT + CELL * i, y: TOP - 14, width: CELL - 1, height: 9, fill: COLOURS[owner[i]] }),
                );
                for (let j = 0; j < TOKENS; j += 1) {
                    if (mask === 1 && j > i) {
                        continue;
                    }
                    const at = when(i, j);
                    const kind = at === step && steps > 0 ? 'now' : at < done ? 'done' : 'later';
                    const key = JSON.stringify([owner[i], kind]);
                    paths.set(key, `${paths.get(key) ?? ''}M${LEFT + CELL * j},${TOP + CELL * i}h${CELL - 1}v${CELL - 1}h${1 - CELL}z`);
                }
            }
            for (const [key, d] of paths) {
                const [rank, kind] = JSON.parse(key);
                svg.append(shape('path', kind === 'later'
                    ? { d, fill: 'none', stroke: 'var(--fig-muted)', 'stroke-opacity': 0.35 }
                    : { d, fill: COLOURS[rank], 'fill-opacity': kind === 'now' ? 0.9 : 0.25 }));
            }
            svg.append(
                ...strips, text(LEFT + CELL * TOKENS / 2, 12, 'keys'),
                text(8, TOP + CELL * TOKENS / 2, 'Q', 'start', 'var(--role-q)'), text(RIGHT - 26, 12, 'keys at hand', 'start'),
                text(480, 12, 'pairs', 'end'),
            );
            const at = rank => TOP + ROW * rank;
            const ofStep = pairs.map(of => of[step]);
            const most = Math.max(...ofStep, 1);
            // Keys set out for the next rank while this one computes, and are there when it is done.
            const way = share > 0 && done < RANKS - 1 ? Math.max(2 * share - 1, 0) : 0;
            for (let rank = 0; rank < RANKS; rank += 1) {
                const y = at(rank);
                svg.append(
                    text(RIGHT - 26, y + 21, String(rank), 'start', COLOURS[rank]),
                    shape('rect', { x: RIGHT, y, width: BOX, height: 42, fill: 'none', stroke: 'var(--fig-muted)', 'stroke-opacity': 0.6 }),
                    shape('rect', { x: RIGHT + BOX + 10, y: y + 8, width: 74 * ofStep[rank] / most, height: 26, fill: 'none', stroke: COLOURS[rank] }),
                    shape('rect', {
                        x: RIGHT + BOX + 10, y: y + 8, width: 74 * Math.min(ofStep[rank] / most, share > 0 ? share : steps > 0 ? 1 : 0), height: 26,
                        fill: COLOURS[rank], 'fill-opacity': 0.9,
                    }),
                    text(480, y + 21, String(ofStep[rank]), 'end'),
                );
            }
            for (let rank = 0; rank < RANKS; rank += 1) {
                const from = (rank - step + RANKS) % RANKS; // whose keys these are
                const down = rank === RANKS - 1 ? -ROW * (RANKS - 1) : ROW;
                const y = at(rank) + down * way;
                svg.append(
                    shape('rect', { x: RIGHT + 5, y: y + 6, width: BOX - 10, height: 30, fill: 'var(--fig-bg)' }),
                    shape('rect', { x: RIGHT + 5, y: y + 6, width: BOX - 10, height: 30, fill: COLOURS[from], 'fill-opacity': 0.35, stroke: COLOURS[from] }),
                    text(RIGHT + BOX / 2, y + 21, String(from)),
                );
            }
            const all = pairs.flat().reduce((a, b) => a + b);
            const computed = pairs.map(of => of.slice(0, steps > 0 ? step + 1 : 0).reduce((a, b) => a + b, 0)).reduce((a, b) => a + b, 0);
            const whole = `Over all steps, the ranks compute ${number(100 * balance, 0)} % of the time.`;
            return {
                svg,
                says: steps === 0 ? `Each rank has its own keys. ${whole}`
                    : `Step ${step + 1} of ${RANKS}: the busiest rank computes ${most} pairs${waits(ofStep, most)}. ${computed} of ${all} pairs with this step. ${whole}`,
            };
        },
    };
};
