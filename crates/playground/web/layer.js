// One picture of a layer, from words to output and back: all of its matrices on a map, which fills as time goes by, and beside the map the one that
// is being computed, with the two that it is a product of. A row goes from the left to a column above it, and what they make falls into its cell.
import { choice, number, rare, remembered, slider, time } from './figure.js';
import { drawing, entries, formula, heatMap, roleOf, shape } from './draw.js';

const CELL = 34;
const [LEFT, TOP] = [342, 276]; // of the result
const SMALL = 8; // a cell on the map
const SECONDS = 5; // that a matrix takes
/** Where matrices stand on the map, without the d of a gradient and the number of a head. */
const PLACES = { X: [8, 90], Q: [70, 18], K: [70, 90], V: [70, 162], S: [122, 55], A: [182, 55], O: [240, 105], Y: [262, 105] };
const PLACES_OF_TWO = {
    X: [8, 90], Q: [54, 18], K: [54, 90], V: [54, 162], S1: [104, 44], A1: [160, 44], O1: [216, 44], S2: [104, 132], A2: [160, 132], O2: [216, 132],
    Y: [252, 88],
};
const part = (fraction, from, to) => Math.min(Math.max((fraction - from) / (to - from), 0), 1);

/** A step: the matrix, its formula, the two matrices of the product, what the sum of products is divided by, and where the map's lines come from. */
const step = (name, formula, left, above, { root = 1, from = [left, above] } = {}) => ({ name, formula, left, above, root, from });

const FORWARD = [
    step('X', 'X: a row of numbers for each word'),
    ...['Q', 'K', 'V'].map(name => step(name, `${name} = X W_${name}`, 'X', `W_${name}`)),
    step('S', 'S = Q Kᵀ / √2', 'Q', 'Kᵀ', { root: Math.SQRT2, from: ['Q', 'K'] }),
    step('A', 'A = softmax of each row of S', 'S'),
    step('O', 'O = A V', 'A', 'V'),
    step('Y', 'Y = O W_O', 'O', 'W_O'),
];
const HEADS = [
    step('X', 'X: a row of numbers for each word'),
    ...['Q', 'K', 'V'].map(name => step(name, `${name} = X W_${name}: two columns for each head`, 'X', `W_${name}`)),
    ...[1, 2].flatMap(r => [
        step(`S${r}`, `S_${r} = Q_${r} K_${r}ᵀ / √2`, `Q${r}`, `K${r}ᵀ`, { root: Math.SQRT2, from: ['Q', 'K'] }),
        step(`A${r}`, `A_${r} = softmax of each row of S_${r}`, `S${r}`),
        step(`O${r}`, `O_${r} = A_${r} V_${r}`, `A${r}`, `V${r}`, { from: [`A${r}`, 'V'] }),
    ]),
    step('Y', 'Y = [O_1 O_2] W_O', 'O1 O2', 'W_O', { from: ['O1', 'O2'] }),
];
const BACKWARD = [
    step('dY', 'dY comes from the loss; here, numbers that we chose'),
    step('dO', 'dO = dY W_Oᵀ', 'dY', 'W_Oᵀ'),
    step('dV', 'dV = Aᵀ dO', 'Aᵀ', 'dO', { from: ['dO'] }),
    step('dA', 'dA = dO Vᵀ', 'dO', 'Vᵀ', { from: ['dO'] }),
    step('dS', 'dS = A ⊙ (dA − D), with D the row sums of A ⊙ dA', 'dA'),
    step('dQ', 'dQ = dS K / √2', 'dS', 'K', { root: Math.SQRT2, from: ['dS'] }),
    step('dK', 'dK = dSᵀ Q / √2', 'dSᵀ', 'Q', { root: Math.SQRT2, from: ['dS'] }),
    step('dX', 'dX = dQ W_Qᵀ + dK W_Kᵀ + dV W_Vᵀ', 'dQ dK dV', 'W_Qᵀ W_Kᵀ W_Vᵀ', { from: ['dQ', 'dK', 'dV'] }),
];
const PATHS = ['none', 'queries', 'keys', 'values'];

export default (attention, { kind }) => {
    const sentences = [attention.Sentence.river(), attention.Sentence.city()];
    const dimensions = attention.dimensions();
    const example = attention.Layer.example();
    const steps = { forward: FORWARD, heads: HEADS, backward: BACKWARD }[kind];
    const places = kind === 'heads' ? PLACES_OF_TWO : PLACES;

    const make = (rows, columns, at) => new attention.Matrix(rows, columns,
        new Float64Array(rows * columns).map((_, l) => at(Math.floor(l / columns), l % columns)));
    const turned = matrix => make(matrix.columns, matrix.rows, (i, j) => entries(matrix)(j, i));
    const parameter = (layer, name) => layer.parameter(layer.parameterNames.indexOf(name.toLowerCase()));

    /** All matrices by their names. */
    const matrices = remembered((sentence, dropped) => {
        const all = {};
        if (kind === 'heads') {
            const layer = new attention.Layer(sentences[0].x, 2, 2, 3n, 4, attention.Mask.none(), 0);
            const both = name => [0, 1].map(head => layer.matrix(name, head));
            const joined = ([a, b]) => make(a.rows, a.columns + b.columns, (i, j) => j < a.columns ? entries(a)(i, j) : entries(b)(i, j - a.columns));
            ['Q', 'K', 'V', 'S', 'A', 'O'].forEach(name => [all[`${name}1`], all[`${name}2`]] = both(name));
            ['Q', 'K', 'V', 'O'].forEach(name => { all[name] = joined([all[`${name}1`], all[`${name}2`]]); });
            Object.assign(all, { X: sentences[0].x, Y: layer.matrix('Y', 0) });
            ['W_Q', 'W_K', 'W_V', 'W_O'].forEach(name => { all[name] = parameter(layer, name); });
            return all;
        }
        ['W_Q', 'W_K', 'W_V', 'W_O'].forEach(name => { all[name] = parameter(example, name); });
        const { x } = sentences[sentence];
        const [q, k, v] = ['W_Q', 'W_K', 'W_V'].map(name => attention.project(x, all[name]));
        const { scores, weights, output } = new attention.Attention(q, k, v, attention.Mask.none());
        Object.assign(all, { X: x, Q: q, K: k, V: v, S: scores, A: weights, O: output, Y: attention.project(output, all.W_O) });
        if (kind === 'backward') {
            steps.forEach(({ name }) => { all[name] = example.matrix(name, 0); });
            if (dropped > 0) {
                const term = entries(example.path(dropped - 1));
                const whole = entries(all.dX);
                all.dX = make(all.dX.rows, all.dX.columns, (i, j) => whole(i, j) - term(i, j));
            }
        }
        return all;
    });

    const controls = {
        forward: [choice('sentence', 'sentence', sentences.map(({ tokens }) => tokens.join(' ')))],
        heads: [],
        backward: [choice('dropped', 'path into X that is dropped', PATHS)],
    }[kind];
    const first = { forward: 4, heads: 10, backward: 7 }[kind];
    return {
        controls: [
            ...controls,
            time('stage', 'step', steps.length - 1, first, {
                seconds: SECONDS * (steps.length - 1), moments: () => steps.slice(1).map(({ name }, s) => [s + 1, name]),
            }),
            rare(slider('row', 'row', 1, 6, 1, kind === 'backward' ? 5 : 3, 0)),
            rare(slider('column', 'column', 1, 6, 1, kind === 'backward' ? 3 : 2, 0)),
        ],
        draw(state, set) {
            const { tokens } = sentences[state.sentence ?? 0];
            const dropped = state.dropped ?? 0;
            const all = matrices(state.sentence ?? 0, dropped);
            /** A matrix, or several side by side; above a product, one below the other. */
            const get = (names, isAbove) => {
                const one = name => all[name] ?? turned(all[name.slice(0, -1)]);
                const parts = names.split(' ').map(name => all[name] && dropped && name === `d${' QKV'[dropped]}`
                    ? make(all[name].rows, all[name].columns, () => 0) : one(name));
                const size = parts[0][isAbove ? 'rows' : 'columns'];
                const at = parts.map(entries);
                return isAbove ? make(size * parts.length, parts[0].columns, (i, j) => at[Math.floor(i / size)](i % size, j))
                    : make(parts[0].rows, size * parts.length, (i, j) => at[Math.floor(j / size)](i, j % size));
            };
            const stage = Math.ceil(state.stage);
            const fraction = state.stage - stage + 1; // 1 where a step is done
            const { name, formula: words, left, above, root, from } = steps[stage];
            const matrix = all[name];
            const { rows, columns } = matrix;
            // The first row comes cell by cell, the others at once.
            const [slow, slowRows] = above ? [0.65, 1] : [0, 0];
            const isFirst = fraction < slow;
            const cells = isFirst ? fraction / slow * columns : 0;
            const done = fraction >= 1 ? rows : isFirst ? 0 : slowRows + part(fraction, slow, 1) * (rows - slowRows);
            const count = isFirst ? Math.floor(cells) : Math.floor(done) * columns;
            const [i, j] = fraction >= 1 ? [Math.min(state.row, rows) - 1, Math.min(state.column, columns) - 1]
                : [Math.min(Math.floor(done), rows - 1), Math.min(Math.floor(cells), columns - 1)];
            const svg = drawing(552, TOP + CELL * 6 + 28, `${name.replace(/(?<=\D)\d/u, ' of head $&')} of “${tokens.join(' ')}”`);
            svg.setAttribute('font-size', 14);

            // The map.
            const full = of => Math.max(...of.entries.filter(Number.isFinite).map(Math.abs), 1e-12);
            const isThere = of => steps.findIndex(step => step.name === of) < stage;
            const key = of => of.replace(/^d/u, '');
            const sizeOf = of => [all[of].rows, all[of].columns].map(count => SMALL * count);
            const frameOf = of => {
                const [x, y] = places[key(of)];
                const [height, width] = sizeOf(of);
                return { x, y, width, height };
            };
            const isForward = kind !== 'backward';
            for (const step of steps) {
                for (const of of step.from.filter(of => of && places[key(of)] && all[of])) {
                    const [a, b] = [frameOf(of), frameOf(step.name)];
                    const ends = isForward ? [[a.x + a.width, a.y + a.height / 2], [b.x, b.y + b.height / 2]]
                        : [[a.x, a.y + a.height / 2], [b.x + b.width, b.y + b.height / 2]];
                    const isUsed = step.name === name && !(name === 'dX' && dropped && of === `d${' QKV'[dropped]}`);
                    const bend = isForward ? 12 : -12;
                    const d = `M${ends[0]}C${ends[0][0] + bend},${ends[0][1]},${ends[1][0] - bend},${ends[1][1]},${ends[1]}`;
                    svg.append(shape('path', {
                        d, fill: 'none', stroke: isUsed ? 'var(--fig-fg)' : 'var(--fig-muted)', 'stroke-opacity': isUsed ? 1 : 0.5, 'stroke-width': isUsed ? 2 : 1,
                        'stroke-dasharray': isUsed ? 'none' : '2 3',
                    }));
                }
            }
            steps.forEach(({ name: of }, s) => {
                const { x, y, width, height } = frameOf(of);
                const group = shape('g', { class: 'press' }, formula(x + width / 2, y - 11.5, of.replace(/(\D)(\d)/u, '$1_$2'), 'middle'));
                const shown = of === name ? count : isThere(of) ? Infinity : 0;
                const most = full(all[of]);
                const at = entries(all[of]);
                for (let l = 0; l < Math.min(shown, all[of].rows * all[of].columns); l += 1) {
                    const [r, c] = [Math.floor(l / all[of].columns), l % all[of].columns];
                    group.append(shape('rect', {
                        x: x + SMALL * c, y: y + SMALL * r, width: SMALL - 0.5, height: SMALL - 0.5,
                        fill: at(r, c) < 0 ? 'var(--fig-heat-neg)' : 'var(--fig-heat)', 'fill-opacity': (0.06 + 0.94 * Math.abs(at(r, c)) / most).toFixed(2),
                    }));
                }
                group.append(shape('rect', {
                    x: x - 1.5, y: y - 1.5, width: width + 2.5, height: height + 2.5, fill: 'transparent', stroke: roleOf(of) ?? 'var(--fig-muted)',
                    'stroke-width': of === name ? 3 : 1.2, 'stroke-dasharray': shown ? 'none' : '2 2',
                }));
                group.addEventListener('click', () => set({ stage: s }));
                svg.append(group);
            });
            svg.append(formula(4, 232, words, 'start'));

            // What is being computed.
            const names = { 6: tokens, 4: kind === 'heads' ? Array(4).fill('') : dimensions.map(name => `${name.slice(0, 3)}.`), 2: ['', ''] };
            const frame = (x, y, columns, rows, colour) => svg.append(shape('rect', {
                x: x - 1, y: y - 1, width: CELL * columns, height: CELL * rows, fill: 'none', stroke: colour, 'stroke-width': 2.5, 'pointer-events': 'none',
            }));
            const blank = count => Array(count).fill('');
            // A number of a factor leads to the step that computes it: in the part that it is in, and of a head in the columns of that head.
            const ask = names => (r, c) => {
                const parts = names.split(' ');
                const width = get(parts[0]).columns;
                const of = parts[Math.floor(c / width)] ?? parts[0];
                const [row, column] = of.endsWith('ᵀ') ? [c, r] : [r, c % width];
                const [, plain, head = 1] = of.replace('ᵀ', '').match(/^(\D+)(\d)?$/u);
                const own = steps.findIndex(step => step.name === of.replace('ᵀ', ''));
                const s = own < 0 ? steps.findIndex(step => step.name === plain) : own;
                return s < 0 ? undefined : set({ stage: s, row: row + 1, column: column + 1 + (own < 0 ? 2 * (head - 1) : 0) });
            };
            const label = (x, y, of, anchor) => svg.append(formula(x, y, of.replace(/(\D)(\d)/u, '$1_$2'), anchor));
            const a = left && get(left);
            const b = above && get(above, true);
            const [leftAt, aboveAt] = [a && LEFT - 18 - CELL * a.columns, b && TOP - 30 - CELL * b.rows];
            if (a) {
                heatMap(svg, {
                    left: leftAt, top: TOP, rows: a.rows === 6 ? tokens : blank(a.rows), columns: blank(a.columns), matrix: a, full: full(a), cell: CELL, digits: 1,
                    choose: ask(left),
                });
                const parts = left.split(' ');
                parts.forEach((of, p) => label(leftAt + CELL * a.columns * p / parts.length, TOP + CELL * 6 + 12, of, 'start'));
            }
            if (b) {
                heatMap(svg, {
                    left: LEFT, top: aboveAt, rows: blank(b.rows), columns: blank(b.columns), matrix: b, full: full(b), cell: CELL, digits: 1,
                    choose: ask(above),
                });
                const parts = above.split(' ');
                parts.forEach((of, p) => label(LEFT - 8, aboveAt + CELL * b.rows * p / parts.length + CELL / 2, of, 'end'));
            }
            heatMap(svg, {
                left: LEFT, top: TOP, rows: a ? blank(rows) : tokens, columns: names[columns] ?? blank(columns), matrix, full: full(matrix), cell: CELL,
                digits: 1, count, choose: (row, column) => set({ row: row + 1, column: column + 1 }),
            });
            label(LEFT, TOP + CELL * 6 + 12, name, 'start');
            const [rowColour, columnColour] = [left, above].map(of => of && (roleOf(of) ?? 'var(--fig-fg)'));
            if (a) {
                frame(leftAt, TOP + CELL * i, a.columns, 1, rowColour);
            }
            if (b && (isFirst || fraction >= 1)) {
                frame(LEFT + CELL * j, aboveAt, 1, b.rows, columnColour);
            }
            if (fraction >= 1) {
                frame(LEFT + CELL * j, TOP + CELL * i, 1, 1, 'var(--fig-fg)');
            } else {
                // The numbers of the row on their way: one after the other to its partner in the column, where both become their product; then all
                // products together into the cell. Without a product, each goes into its own cell.
                const u = isFirst ? cells % 1 : done % 1;
                const onTheWay = b && !isFirst ? 0 : a?.columns ?? 0;
                const falls = part(u, b ? 0.78 : 0.1, b ? 1 : 0.9);
                for (let l = 0; l < onTheWay; l += 1) {
                    const start = [leftAt + CELL * l, TOP + CELL * i];
                    const via = b ? [LEFT + CELL * j, aboveAt + CELL * l] : start;
                    const end = [LEFT + CELL * (b ? j : l), TOP + CELL * i];
                    const there = b ? part(u, 0.7 * l / onTheWay, 0.7 * (l + 1) / onTheWay) : 0;
                    if (b && there === 0) {
                        continue; // it waits for those before it
                    }
                    const [x, y] = [0, 1].map(d => (start[d] + (via[d] - start[d]) * there) * (1 - falls) + end[d] * falls);
                    const isProduct = b && there === 1;
                    const value = entries(a)(i, l) * (isProduct ? entries(b)(l, j) : 1);
                    heatMap(svg, {
                        left: x, top: y, rows: [''], columns: [''], matrix: make(1, 1, () => value), full: isProduct ? root * full(matrix) : full(a), cell: CELL,
                        digits: 1, chosen: [0, 0], isOpaque: true,
                    });
                }
            }

            const value = number(entries(matrix)(i, j), 2);
            const told = word => word.replaceAll('_', '');
            const products = () => {
                const [row, column] = [entries(a), entries(b)];
                const sum = Array.from({ length: a.columns }, (_, l) => `${number(row(i, l), 2)} · ${number(column(l, j), 2)}`).join(' + ');
                return root === 1 ? `${sum} = ${value}` : `(${sum}) / √2 = ${value}`;
            };
            const behind = {
                X: () => `“${tokens[i]}” has ${value} of ${dimensions[j]}.`,
                dY: () => `${value}, as chosen.`,
                S: () => `“${tokens[i]}” asks, “${tokens[j]}” answers: ${products()}.`,
                A: () => `“${tokens[i]}” gives ${value} of its attention to “${tokens[j]}”; the row sums to 1.`,
                dS: () => `${number(entries(all.A)(i, j), 2)} · (${number(entries(all.dA)(i, j), 2)} − ${number(rowMean(all, i), 2)}) = ${value}.`,
            }[name.replace(/\d/u, '')] ?? (() => `${products()}.`);
            const says = [fraction < 1 ? `${told(words)}${a ? `: the row of “${tokens[i] ?? ''}”` : ''}.` : `${told(words)}. Row ${i + 1}, column ${j + 1}: ${behind()}`];
            if (dropped > 0) {
                const whole = example.matrix('dX', 0).entries;
                const cut = all.dX.entries;
                const dot = (a, b) => a.reduce((sum, x, l) => sum + x * b[l], 0);
                const [length, kept] = [whole, cut].map(of => Math.sqrt(dot(of, of)));
                says.push(`Without the path through the ${PATHS[dropped]}, dX has ${number(kept / length, 2)} of its length, and the cosine `
                    + `of its angle to the right one is ${number(dot(whole, cut) / (length * kept), 2)}.`);
            }
            return { svg, says: says.join(' '), limits: { row: rows, column: columns } };
        },
    };

    /** D of softmax's gradient. */
    function rowMean({ A, dA }, i) {
        return Array.from({ length: A.columns }, (_, l) => entries(A)(i, l) * entries(dA)(i, l)).reduce((sum, x) => sum + x, 0);
    }
};
