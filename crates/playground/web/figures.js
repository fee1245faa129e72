// The figures that move: each <figure data-figure="name"> of the page becomes what `name.js` makes of it, once the page can be read.
import start, * as attention from './attention.js';
import { Figure } from './figure.js';

const elements = [...document.querySelectorAll('figure[data-figure]')];
const kinds = elements.map(({ dataset }) => import(`./${dataset.figure}.js`));
await start();
for (const [i, element] of elements.entries()) {
    const { default: kind } = await kinds[i];
    new Figure(element, element.dataset.figure, kind(attention, element.dataset));
}
