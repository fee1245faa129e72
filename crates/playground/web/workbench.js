// A bench of the reader's own: any words or numbers through a layer, forward and backward, and the products behind every entry.
import { addressOf, choice, number, rare, slider, step, words } from './figure.js';
import { drawing, entries, formula, heatMap, shape, text } from './draw.js';

const FORWARD = ['X', 'Q', 'K', 'V', 'S', 'A', 'O', 'Y'];
const BACKWARD = ['dY', 'dO', 'dV', 'dA', 'dS', 'dQ', 'dK', 'dX'];
const MATRICES = [...FORWARD, ...BACKWARD];
const HEADS = [1, 2, 4];
const MASKS = [['none', 'Mask::none()'], ['causal', 'Mask::causal()'], ['window of 3', 'Mask::window(3)?']];
// As the crate numbers them.
const [, WAVES, ANGLES, BIAS] = [0, 1, 2, 3];
const POSITIONS = ['none', 'waves, added to X', 'angles of Q and K', 'bias by distance'];
const SHARED = ['one for each head', '2', '1'];
const MOST_TOKENS = 8;
const LARGEST = 1000;
const [MINIATURE, LARGE] = [42, 45];
const [LEFT, TOP] = [70, 230]; // of the large matrix
/** The corner of a miniature. */
const place = matrix => [6 + 60 * (matrix % 8), 30 + 72 * Math.floor(matrix / 8)];
/** What an entry is made of has the same colour in the miniatures and on its way. */
const SOURCES = ['var(--fig-1)', 'var(--fig-2)', 'var(--fig-3)'];

/** A word without what stands before and behind it. */
const bare = word => word.replace(/^[^\p{L}\p{N}]+|[^\p{L}\p{N}]+$/gu, '') || word;

/** A word as far as there is room, cut between two characters as a reader sees them. */
const cut = word => {
    const characters = [...new Intl.Segmenter().segment(word)].map(({ segment }) => segment);
    return characters.length > 7 ? `${characters.slice(0, 6).join('')}…` : word;
};

/** The rows that are meant: of numbers, where semicolons part the rows or all is numbers, or else one for each word. */
const read = (attention, line) => {
    // A comma parts numbers as a blank does, and what stands around a word is no part of it.
    const parts = line.replaceAll(',', ' ').split(/\s+/u).map(part => Number.isFinite(Number(part)) ? part : bare(part)).filter(part => part);
    const isNumbers = line.includes(';') || (parts.length > 0 && parts.every(part => Number.isFinite(Number(part))));
    if (!isNumbers) {
        return { tokens: parts, rows: parts.map(word => [...attention.embed(word)]) };
    }
    const rows = line.replaceAll(',', ' ').replace(/[\s;]+$/u, '').split(';').map(row => row.trim().split(/\s+/u).filter(part => part).map(Number));
    rows.forEach((row, i) => {
        if (row.length === 0 || row.some(x => !(Math.abs(x) <= LARGEST))) {
            throw new Error(`Row ${i + 1} has to be numbers from −${LARGEST} to ${LARGEST}.`);
        }
        if (row.length !== rows[0].length) {
            throw new Error(`Row ${i + 1} has ${row.length} numbers, and row 1 has ${rows[0].length}.`);
        }
    });
    return { tokens: rows.map((_, i) => `row ${i + 1}`), rows };
};

export default attention => {
    const masks = [attention.Mask.none(), attention.Mask.causal(), attention.Mask.window(3)];
    const names = new attention.Layer(new attention.Matrix(1, 4, new Float64Array(4)), 1, 1, 1n, 1, masks[0], 0).parameterNames;

    const input = state => {
        const { tokens, rows } = read(attention, state.line);
        if (tokens.length === 0 || tokens.length > MOST_TOKENS) {
            throw new Error(`There is room for 1 to ${MOST_TOKENS} words or rows, and here are ${tokens.length}.`);
        }
        const [heads, width] = [HEADS[state.heads], rows[0].length];
        if (width > MOST_TOKENS) {
            throw new Error(`There is room for rows of up to ${MOST_TOKENS} numbers, and here are ${width}.`);
        }
        if (width % heads !== 0) {
            throw new Error(`Rows of ${width} numbers can't be shared by ${heads} heads: choose fewer heads.`);
        }
        return { tokens, rows, heads, shared: Math.min([heads, 2, 1][state.shared], heads), width };
    };

    return {
        controls: [
            words('line', 'words, or rows of numbers: 1 0; 0 1', 400, 'the boat left the river bank'),
            step('matrix', 'matrix', MATRICES, 5),
            slider('row', 'row', 1, MOST_TOKENS, 1, 6, 0),
            slider('column', 'column', 1, MOST_TOKENS, 1, 2, 0),
            choice('heads', 'heads', HEADS.map(String), 1),
            slider('head', 'the head that is shown', 1, 4, 1, 1, 0),
            choice('mask', 'mask', MASKS.map(([name]) => name)),
            rare(slider('factor', 'factor on the scores', 0, 5, 0.1, 1)),
            rare(slider('dropout', 'dropout', 0, 0.9, 0.05, 0, 2)),
            rare(slider('seed', 'seed of the parameters', 1, 50, 1, 1, 0)),
            rare(choice('parameter', 'nudged parameter', names)),
            rare(slider('power', 'step of the nudge: ten to the', -12, 0, 0.5, -5)),
            rare(choice('positions', 'positions', POSITIONS)),
            rare(choice('shared', 'key-value heads', SHARED)),
        ],
        copies: [
            { label: 'Copy as Rust', text: state => rust(input(state), state) },
            { label: 'Copy the link', text: () => addressOf('workbench') },
        ],
        draw(state, set) {
            const { tokens, rows, heads, shared, width } = input(state);
            const x = new attention.Matrix(rows.length, width, new Float64Array(rows.flat()));
            const layer = new attention.Layer(x, heads, shared, BigInt(state.seed), state.factor, masks[state.mask], state.dropout);
            layer.place(state.positions);
            const head = Math.min(state.head, heads) - 1;
            const all = Object.fromEntries(MATRICES.map(name => [name, layer.matrix(name, head)]));
            const name = MATRICES[state.matrix];
            const shown = all[name];
            const [i, j] = [Math.min(state.row, shown.rows) - 1, Math.min(state.column, shown.columns) - 1];
            const { products, from } = behind({ layer, all, rows, heads, shared, head, state }, name, i, j);

            const svg = drawing(480, 240 + LARGE * shown.rows, `${name} of a layer`);
            MATRICES.forEach((of, m) => {
                const [left, top] = place(m);
                const marks = from.flatMap(([matrix, kind, index], source) => matrix === of ? [[kind, index, SOURCES[source]]] : []);
                miniature(svg, { left, top, name: of, matrix: all[of], marks, chosen: of === name, choose: () => set({ matrix: m }) });
            });
            const lines = [];
            from.forEach(([of, kind, index], source) => {
                const [left, top] = place(MATRICES.indexOf(of));
                const { rows, columns } = all[of];
                const size = MINIATURE / Math.max(rows, columns, 4);
                const [x, y] = kind === 'row' ? [left, top + size * (index + 0.5)] : [left + size * (index + 0.5), top + size * rows];
                // To the entry itself, two sources side by side.
                const [toX, toY] = [LEFT + LARGE * (j + 0.5) + 8 * (source - (from.length - 1) / 2), TOP + LARGE * i];
                lines.push(shape('path', {
                    d: `M${x},${y}C${x},${y + 70},${toX},${toY - 90},${toX},${toY}`, fill: 'none', stroke: SOURCES[source], 'stroke-width': 2, 'stroke-opacity': 0.6,
                    'pointer-events': 'none',
                }));
            });
            const short = tokens.map(cut);
            const columns = 'SA'.includes(name.at(-1)) ? short : Array.from({ length: shown.columns }, (_, c) => String(c + 1));
            svg.append(formula(60, 186, `${name}${'XY'.includes(name.at(-1)) ? '' : `, head ${head + 1} of ${heads}`}`, 'start'));
            heatMap(svg, {
                left: LEFT, top: TOP, rows: short, columns, matrix: shown, cell: LARGE, chosen: [i, j],
                full: Math.max(...shown.entries.filter(Number.isFinite).map(Math.abs), 1e-12),
                choose: (row, column) => set({ row: row + 1, column: column + 1 }),
            });
            svg.append(...lines);
            const says = `${name}, row ${i + 1}, column ${j + 1}: ${products}. ${nudge(layer, state)}`;
            return { svg, says, limits: { head: heads } };
        },
    };

    /** A slope by the backward pass, and measured: of the entry at the chosen row and column, or as near as the parameter has one. */
    function nudge(layer, { parameter, row, column, power }) {
        const { rows, columns } = layer.parameter(parameter);
        const [i, j] = [Math.min(row, rows) - 1, Math.min(column, columns) - 1];
        const exact = entries(layer.gradient(parameter))(i, j);
        const entry = `${names[parameter]}, row ${i + 1}, column ${j + 1}`;
        try {
            const measured = layer.measured(parameter, i, j, 10 ** power);
            return `Slope with respect to ${entry}: ${number(exact, 9)} by the backward pass, ${number(measured, 9)} measured.`;
        } catch (error) {
            return `Slope with respect to ${entry}: ${number(exact, 9)} by the backward pass; it can't be measured: ${error.message}.`;
        }
    }
};

/** A small picture of a matrix, with its name above it, and frames around the rows and columns that a number comes from. */
const miniature = (svg, { left, top, name, matrix, marks, chosen, choose }) => {
    const { rows, columns } = matrix;
    const at = entries(matrix);
    const size = MINIATURE / Math.max(rows, columns, 4);
    const full = Math.max(...matrix.entries.filter(Number.isFinite).map(Math.abs), 1e-12);
    const group = shape('g', { class: 'press' }, formula(left + MINIATURE / 2, top - 12, name));
    for (let i = 0; i < rows; i += 1) {
        for (let j = 0; j < columns; j += 1) {
            const value = at(i, j);
            group.append(shape('rect', {
                x: left + size * j, y: top + size * i, width: size - 0.5, height: size - 0.5,
                fill: value < 0 ? 'var(--fig-heat-neg)' : 'var(--fig-heat)',
                'fill-opacity': Number.isFinite(value) ? 0.06 + 0.94 * Math.min(Math.abs(value) / full, 1) : 0,
            }));
        }
    }
    const frame = (x, y, width, height, colour) => group.append(shape('rect', {
        x: left + x, y: top + y, width, height, fill: 'none', stroke: colour, 'stroke-width': 2,
    }));
    if (chosen) {
        frame(-3, -3, size * columns + 6, size * rows + 6, 'var(--fig-2)');
    }
    for (const [kind, index, colour] of marks) {
        if (kind === 'row') {
            frame(0, size * index, size * columns, size, colour);
        } else {
            frame(size * index, 0, size, size * rows, colour);
        }
    }
    group.addEventListener('click', choose);
    svg.append(group);
};

/** The products that an entry comes from, and the rows and columns that they are of. */
const behind = ({ layer, all, rows, heads, shared, head, state }, name, i, j) => {
    const value = number(entries(all[name])(i, j), 2).replace('-Infinity', '−∞').replace('−Infinity', '−∞');
    const row = (matrix, r, first = 0) => ({ at: l => entries(matrix)(r, first + l), length: matrix.columns });
    const column = (matrix, c) => ({ at: l => entries(matrix)(l, c), length: matrix.rows });
    const sum = (a, b, by = '') => {
        const terms = Array.from({ length: Math.min(a.length, b.length) }, (_, l) => `${number(a.at(l), 2)} · ${number(b.at(l), 2)}`);
        return by ? `(${terms.join(' + ')}) ${by} ≈ ${value}` : `${terms.join(' + ')} ≈ ${value}`;
    };
    const parameter = of => layer.parameter(layer.parameterNames.indexOf(of));
    const width = all.Q.columns;
    // Keys and values of a group of heads are those of one key-value head.
    const projection = (of, n = heads) => {
        const products = sum(row(all.X, i), column(parameter(of), Math.floor(head * n / heads) * width + j));
        const turned = state.positions === ANGLES && of !== 'w_v';
        return { products: turned ? `${value}, turned by the angle of position ${i}` : products, from: [['X', 'row', i]] };
    };
    const bias = () => {
        const [query, key] = [row(all.Q, i), row(all.K, j)];
        const scores = Array.from({ length: width }, (_, l) => query.at(l) * key.at(l) / Math.sqrt(width));
        const added = entries(all.S)(i, j) - scores.reduce((sum, product) => sum + product, 0);
        return state.positions === BIAS ? ` − ${number(Math.abs(added), 2)}` : '';
    };
    const joined = () => {
        const outputs = Array.from({ length: heads }, (_, h) => layer.matrix('O', h));
        return { at: l => entries(outputs[Math.floor(l / width)])(i, l % width), length: heads * width };
    };
    const root = `/ √${width}`;
    const dropped = state.dropout > 0 ? ', after dropout' : '';
    return {
        X: () => ({
            products: state.positions === WAVES ? `${number(rows[i][j], 2)} + the wave ${number(entries(all.X)(i, j) - rows[i][j], 2)} ≈ ${value}` : `${value}, as given`,
            from: [],
        }),
        Q: () => projection('w_q'),
        K: () => projection('w_k', shared),
        V: () => projection('w_v', shared),
        S: () => Number.isFinite(entries(all.S)(i, j))
            ? { products: sum(row(all.Q, i), row(all.K, j), root + bias()), from: [['Q', 'row', i], ['K', 'row', j]] }
            : { products: 'the mask hides this key from this query', from: [] },
        A: () => ({ products: `${value}, by softmax of row ${i + 1} of S${dropped}`, from: [['S', 'row', i]] }),
        O: () => ({ products: sum(row(all.A, i), column(all.V, j)), from: [['A', 'row', i], ['V', 'column', j]] }),
        Y: () => ({ products: sum(joined(), column(parameter('w_o'), j)), from: [['O', 'row', i]] }),
        dY: () => ({ products: `${value}, fixed by the loss`, from: [] }),
        dO: () => ({ products: sum(row(all.dY, i), row(parameter('w_o'), head * width + j)), from: [['dY', 'row', i]] }),
        dV: () => ({ products: sum(column(all.A, i), column(all.dO, j)), from: [['A', 'column', i], ['dO', 'column', j]] }),
        dA: () => Number.isFinite(entries(all.S)(i, j))
            ? { products: sum(row(all.dO, i), row(all.V, j)) + dropped, from: [['dO', 'row', i], ['V', 'row', j]] }
            : { products: `${value}, since the mask hides this key from this query`, from: [] },
        dS: () => {
            const from = [['A', 'row', i], ['dA', 'row', i]];
            if (state.dropout > 0) {
                return { products: `${value}, by softmax's gradient and the weights before dropout`, from };
            }
            const [a, dA] = [row(all.A, i), row(all.dA, i)];
            const mean = Array.from({ length: a.length }, (_, l) => a.at(l) * dA.at(l)).reduce((sum, product) => sum + product, 0);
            const [weight, gradient, d] = [a.at(j), dA.at(j), mean].map(x => number(x, 2));
            return { products: `${weight} · (${gradient} − ${d}) ≈ ${value}, where ${d} is the row's mean D`, from };
        },
        dQ: () => ({ products: sum(row(all.dS, i), column(all.K, j), root), from: [['dS', 'row', i], ['K', 'column', j]] }),
        dK: () => ({ products: sum(column(all.dS, i), column(all.Q, j), root), from: [['dS', 'column', i], ['Q', 'column', j]] }),
        dX: () => {
            const terms = ['queries', 'keys', 'values'].map((path, p) => `${number(entries(layer.path(p))(i, j), 2)} through the ${path}`);
            return { products: `${terms.join(' + ')} ≈ ${value}`, from: [['dQ', 'row', i], ['dK', 'row', i], ['dV', 'row', i]] };
        },
    }[name]();
};

/** A program that computes the same with the crate. */
const rust = ({ tokens, rows, heads, shared, width }, { line, mask, factor, dropout, seed, head, positions }) => {
    const numbers = rows.map(row => `        ${row.map(x => Number.isInteger(x) ? x.toFixed(1) : String(x)).join(', ')},`).join('\n');
    const shown = Math.min(head, heads) - 1;
    const changes = factor === 1 ? '' : `    layer.parameters.w_q *= ${factor.toFixed(1)};\n`;
    const options = dropout === 0 ? '' : `.dropout(${dropout}, &mut ChaCha8Rng::seed_from_u64(${seed}))`;
    const used = ['', ', positions::sinusoidal_positions', ', Rotary, positions::RotaryPairs', ', ScoreRule'][positions];
    const waves = positions === WAVES ? `    let x = x + sinusoidal_positions::<f64>(${tokens.length}, ${width})?;\n` : '';
    const angles = positions === ANGLES ? '    let layer = layer.with_rotary(Rotary::new(10_000.0, RotaryPairs::Halves)?)?;\n' : '';
    const bias = positions === BIAS ? `.with_scores(ScoreRule::alibi(${heads})?)` : '';
    const made = shared === heads ? `xavier(${width}, ${heads}, rng)` : `xavier_grouped(${width}, ${heads}, ${shared}, rng)`;
    return `use attention::{ForwardOptions, Mask, MultiHeadAttention${used}};
use nalgebra::DMatrix;
use rand::{SeedableRng, rngs::ChaCha8Rng};

fn main() -> attention::Result<()> {
    // ${line.trim().replaceAll(/\s+/gu, ' ')}
    let x = DMatrix::from_row_slice(${tokens.length}, ${width}, &[
${numbers}
    ]);
${waves}    let rng = &mut ChaCha8Rng::seed_from_u64(${seed});
    let ${factor === 1 ? '' : 'mut '}layer = MultiHeadAttention::<f64>::${made}?;
${changes}${angles}    let options = ForwardOptions::new().mask(${MASKS[mask][1]}${bias})${options};
    let (output, cache) = layer.forward(&x, options)?;
    println!("weights of head ${shown + 1}:{:.2}", cache.heads()[${shown}].weights_used()?);
    println!("output:{output:.2}");
    Ok(())
}
`;
};
