// Drawings in the manner of the book's still figures: the same colours, sizes and letters.
import { number } from './figure.js';

export const shape = (tag, attributes = {}, ...children) => {
    const made = document.createElementNS('http://www.w3.org/2000/svg', tag);
    for (const [name, value] of Object.entries(attributes)) {
        made.setAttribute(name, value);
    }
    made.append(...children);
    return made;
};

/** An empty drawing. `name` is what a screen reader calls it; what is to be seen is said below it. */
export const drawing = (width, height, name) => shape('svg', {
    viewBox: `0 0 ${width} ${height}`,
    width,
    height,
    role: 'img',
    'aria-label': name,
    style: `max-width: ${width}px`,
    'font-size': 16,
    fill: 'var(--fig-fg)',
});

export const text = (x, y, words, anchor = 'middle', colour = 'var(--fig-fg)') =>
    shape('text', { x, y, dy: '0.35em', 'text-anchor': anchor, fill: colour }, words);

/** The colour of queries, keys or values, if a name has one of their letters and no other. */
export const roleOf = name => {
    const roles = new Set(name.match(/[QKV]/gu));
    return roles.size === 1 ? `var(--role-${[...roles][0].toLowerCase()})` : undefined;
};

/** Words with symbols in them, set as a formula: `S_1 = Q Kᵀ / √2`. A symbol is a capital letter, with a d before it, an index and ᵀ behind it. */
export const formula = (x, y, words, anchor = 'middle') => {
    const line = text(x, y, '', anchor);
    const part = (letters, attributes = {}) => line.append(shape('tspan', attributes, letters));
    const maths = { 'font-family': 'KaTeX_Math, serif', 'font-style': 'italic', 'font-size': '1.1em' };
    for (const [, plain, symbol, index, isTurned] of words.matchAll(/(.*?)(?:(d?[A-Z])(?:_([A-Z\d]))?(ᵀ)?(?![a-z])|$)/gu)) {
        const colour = symbol && roleOf(`${symbol}${index ?? ''}`);
        const role = colour ? { fill: colour } : {};
        if (plain) {
            part(plain);
        }
        if (symbol) {
            part(symbol, { ...maths, ...role });
        }
        if (index) {
            part(index, { ...maths, ...role, 'font-size': '0.8em', dy: '0.25em' });
        }
        if (isTurned) {
            part('⊤', { 'font-family': 'KaTeX_Main, serif', 'font-size': '0.8em', dy: index ? '-0.75em' : '-0.45em', ...role });
        }
        if (index || isTurned) {
            part('\u200b', { dy: isTurned ? '0.36em' : '-0.2em' });
        }
    }
    return line;
};

/** A matrix of the crate as a function of row and column. */
export const entries = matrix => {
    const { columns, entries } = matrix;
    return (i, j) => entries[i * columns + j];
};

/**
 * Bars, one a row, with their labels before them and their numbers behind. Where numbers may be negative (`signed`), 0 lies in the middle, and
 * a negative number stands before its bar if the labels, which end at `labelsEnd`, leave room.
 */
export const bars = (svg, {
    left, top, width, row, most, labels = [], labelsEnd = left - 8, values, digits = 2, signed = false, colour = i => `var(--fig-${1 + i % 3})`,
}) => {
    const [zero, reach] = signed ? [left + width / 2, width / 2] : [left, width];
    values.forEach((value, i) => {
        const y = top + row * i;
        const length = value === 0 ? 0 : Math.max(reach * Math.min(Math.abs(value) / most, 1), 1);
        const words = number(value, digits);
        const isBefore = value < 0 && zero - length - 8 - 9 * words.length > labelsEnd;
        svg.append(
            text(labelsEnd, y + row / 2, labels[i] ?? '', 'end'),
            shape('rect', { x: value < 0 ? zero - length : zero, y: y + 4, width: length, height: row - 8, fill: colour(i) }),
            isBefore ? text(zero - length - 8, y + row / 2, words, 'end')
                : text((value < 0 ? zero : zero + length) + 8, y + row / 2, words, 'start'),
        );
    });
};

/**
 * A matrix as coloured cells of `cell` pixels. Hidden entries are empty frames: −∞ among scores, and NaN, which stands for 0, among
 * weights. With `choose`, a cell can be pressed, and the one at `chosen` is framed. Only the first `count` entries are there yet. What is `isOpaque`
 * hides what lies below it.
 */
export const heatMap = (svg, { left, top, rows, columns, matrix, full, digits = 2, cell: CELL = 58, chosen, choose, count = Infinity, isOpaque = false }) => {
    const at = entries(matrix);
    // What is not there yet is one path of empty frames.
    let awaited = '';
    for (let i = 0; i < matrix.rows; i += 1) {
        svg.append(text(left - 8, top + CELL * i + CELL / 2 - 1, rows[i], 'end'));
        for (let j = 0; j < matrix.columns; j += 1) {
            const value = at(i, j);
            const [x, y] = [left + CELL * j, top + CELL * i];
            if (i * matrix.columns + j >= count) {
                awaited += `M${x},${y}h${CELL - 2}v${CELL - 2}h${2 - CELL}z`;
                continue;
            }
            const colour = value < 0 ? 'var(--fig-heat-neg)' : 'var(--fig-heat)';
            const cell = Number.isFinite(value)
                ? shape('rect', { fill: colour, 'fill-opacity': 0.06 + 0.94 * Math.min(Math.abs(value) / full, 1) })
                : shape('rect', { fill: 'var(--fig-bg)', stroke: 'var(--fig-muted)', 'stroke-opacity': 0.25 });
            for (const [name, size] of Object.entries({ x, y, width: CELL - 2, height: CELL - 2 })) {
                cell.setAttribute(name, size);
            }
            const wide = Math.abs(value) >= 99.995;
            const words = Number.isFinite(value) ? (Math.abs(value) < 1e5 ? number(value, wide ? 0 : digits) : value.toExponential(0).replace('-', '−')) : Number.isNaN(value) ? '0' : '−∞';
            const ground = isOpaque ? [shape('rect', { x, y, width: CELL - 2, height: CELL - 2, fill: 'var(--fig-bg)' })] : [];
            const group = shape('g', {}, ...ground, cell, text(x + CELL / 2 - 1, y + CELL / 2 - 1, words));
            if (choose) {
                group.classList.add('press');
                group.addEventListener('click', () => choose(i, j));
            }
            svg.append(group);
        }
    }
    if (awaited) {
        svg.append(shape('path', { d: awaited, fill: 'none', stroke: 'var(--fig-muted)', 'stroke-opacity': 0.25 }));
    }
    columns.forEach((label, j) => svg.append(text(left + CELL * j + CELL / 2 - 1, top - 14, label)));
    if (chosen) {
        const [i, j] = chosen;
        svg.append(shape('rect', {
            x: left + CELL * j, y: top + CELL * i, width: CELL - 2, height: CELL - 2,
            fill: 'none', stroke: 'var(--fig-fg)', 'stroke-width': 2.5, 'pointer-events': 'none',
        }));
    }
};

const LEVELS = 10;

/** A matrix as a picture of some hundred thousand cells: one path for all that are about as large. A `curve` from 0 to 1 lets small ones be seen. */
export const picture = (svg, { left, top, width, height, matrix, full = 1, turned = false, curve = x => x }) => {
    const at = entries(matrix);
    const [down, across] = turned ? [matrix.columns, matrix.rows] : [matrix.rows, matrix.columns];
    const [w, h] = [width / across, height / down];
    const xs = Array.from({ length: across }, (_, j) => (left + w * j).toFixed(2));
    const cell = `h${w.toFixed(2)}v${h.toFixed(2)}h-${w.toFixed(2)}z`;
    const paths = new Map();
    for (let i = 0; i < down; i += 1) {
        const y = (top + h * i).toFixed(2);
        for (let j = 0; j < across; j += 1) {
            const value = (turned ? at(j, i) : at(i, j)) / full;
            const level = value === 0 ? 0 : Math.sign(value) * Math.min(Math.round(LEVELS * curve(Math.abs(value))), LEVELS);
            if (level !== 0) {
                paths.set(level, `${paths.get(level) ?? ''}M${xs[j]} ${y}${cell}`);
            }
        }
    }
    for (const [level, d] of paths) {
        svg.append(shape('path', {
            d, fill: level < 0 ? 'var(--fig-heat-neg)' : 'var(--fig-heat)', 'fill-opacity': Math.abs(level) / LEVELS,
        }));
    }
};
