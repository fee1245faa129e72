// The figures that move: each <figure data-figure="name"> of the page becomes the figure of that name, once it comes near the window.
import start, * as attention from './attention.js';
import { Figure } from './figure.js';
import { bank } from './bank.js';
import { masks } from './masks.js';
import { online } from './online.js';
import { root } from './root.js';
import { slope } from './slope.js';
import { softmax } from './softmax.js';
import { steps } from './steps.js';

const figures = { bank, masks, online, root, slope, softmax, steps };

await start();
for (const element of document.querySelectorAll('figure[data-figure]')) {
    const name = element.dataset.figure;
    new Figure(element, name, figures[name](attention));
}
