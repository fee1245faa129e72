// A card beside a link shows what the link leads to: the meaning of a word, the beginning of a section, a figure or a footnote. It comes when
// the pointer rests on the link or the keyboard has focused it, stays while the pointer is on it, and goes with the Escape key. A letter of the
// text that stands for a matrix or a number gets one, too, from the table of letters.

// How long the pointer rests on a link before its card comes, and how long the card waits for a pointer that has left; in ms.
const BEFORE = 350;
const AFTER = 250;

// Between a link and its card, and between the card and the edge of the window; in px.
const GAP = 6;

const card = document.createElement('div');
card.id = 'preview-card';
card.className = 'preview-card';
card.setAttribute('role', 'tooltip');
card.hidden = true;
document.body.append(card);

const styled = new Promise(done => {
    const sheet = document.createElement('link');
    sheet.rel = 'stylesheet';
    sheet.onload = sheet.onerror = done;
    sheet.href = new URL('preview.css', import.meta.url);
    document.head.append(sheet);
});

const pages = new Map();

// A page as it was built, without what scripts have made of it.
function page(address) {
    if (!pages.has(address)) {
        const parsed = fetch(address).then(async answer =>
            answer.ok ? new DOMParser().parseFromString(await answer.text(), 'text/html') : null);
        pages.set(address, parsed.catch(() => null));
    }
    return pages.get(address);
}

// The page with the letters, and the heading above those that hold everywhere.
const [SHEET, LETTERS] = ['formulas.html', 'letters'];

// Where letters have no meaning of the book's: on the first pages, and beside the tables.
const WITHOUT_LETTERS = /\/((using-this-book|welcome|index|formulas)\.html)?$/;

// The link to a page of the book, or the formula of one letter, that an element is in. A link that sets a figure (by its query) has no card:
// that would show the figure as it was drawn.
function subjectAround(element) {
    const link = element.closest?.('main a[href]:not(.header, .number)');
    if (link) {
        const folder = address => new URL('.', address).href;
        return !link.search && folder(link.href) === folder(location.href) && /(\/|\.html)$/.test(link.pathname) ? link : null;
    }
    const formula = element.closest?.('main .katex');
    return formula && !formula.closest('.katex-display') && /^\\?[a-z]+(\{L\})?(_.*)?$/i.test(source(formula)) ? formula : null;
}

const source = formula => formula.querySelector('annotation')?.textContent.trim() ?? '';

const names = cell => [...cell.querySelectorAll('.katex')].flatMap(formula => source(formula).split(/,\s*/));

const rowsOf = element => [...element?.querySelectorAll('tbody tr') ?? []].map(({ cells }) => [...cells]);

// The letters of a chapter, each with its meaning: its row has them with dots between, and a colon that stays with the letter.
function ofChapter(cell) {
    const entries = [];
    const begin = () => entries.push([document.createElement('p')]);
    begin();
    for (const node of cell.childNodes) {
        for (const part of node.nodeType === Node.TEXT_NODE ? node.data.split(/( · )/) : [node.cloneNode(true)]) {
            const entry = entries.at(-1);
            if (part === ' · ') {
                begin();
            } else {
                entry.at(-1).append(part);
            }
            if (entry.length === 1 && part.textContent?.endsWith(':')) {
                entry.push(document.createElement('p'));
            }
        }
    }
    return entries.filter(entry => entry.length === 2);
}

// What a letter stands for: in this chapter, or else everywhere. A letter with an index may stand in the meaning of another.
async function row(letter) {
    if (WITHOUT_LETTERS.test(location.pathname)) {
        return [];
    }
    const sheet = await page(new URL(SHEET, location.href).href);
    const here = link => new URL(link.getAttribute('href'), location.href).pathname === location.pathname;
    const isOfHere = cell => [...cell.querySelectorAll('a')].some(here);
    // Only a row with the letters of a chapter begins with its link.
    const own = rowsOf(sheet).filter(([chapter]) => isOfHere(chapter));
    const rows = [...own.flatMap(([, letters]) => ofChapter(letters)), ...rowsOf(sheet?.getElementById(LETTERS).closest('section'))];
    return rows.find(([first]) => names(first).includes(letter))
        ?? rows.find(([, meaning]) => letter.includes('_') && names(meaning).includes(letter)) ?? [];
}

// What a link leads to, as elements of the other page.
async function behind(link) {
    if (!link.href) {
        return row(source(link));
    }
    const { origin, pathname, hash } = new URL(link.href);
    const target = await page(origin + pathname);
    const found = hash ? target?.getElementById(decodeURIComponent(hash.slice(1))) : target?.querySelector('main h1');
    if (!found) {
        return [];
    }
    if (/^H[1-6]$/.test(found.tagName)) {
        return section(found);
    }
    const entry = found.closest('tr');
    return entry ? [found, ...[...entry.cells].slice(1)] : [found.closest('figure, li, p, div') ?? found];
}

// A heading and the first paragraph below it. Below the title of a chapter there is its question first.
function section(heading) {
    const paragraphs = [];
    const most = heading.tagName === 'H1' ? 2 : 1;
    for (let next = heading.nextElementSibling; next && paragraphs.length < most; next = next.nextElementSibling) {
        if (/^H[1-6]$/.test(next.tagName)) {
            break;
        }
        if (next.tagName === 'P') {
            paragraphs.push(next);
        }
    }
    return [heading, ...paragraphs];
}

// An element without what can be focused and without ids that the page may have, too.
function plain(element) {
    const isTitle = /^(H[1-6]|STRONG)$/.test(element.tagName);
    const block = document.createElement(element.tagName === 'FIGURE' ? 'figure' : isTitle ? 'strong' : 'p');
    block.innerHTML = element.innerHTML
        .replace(/(\sid="|url\(#|\shref="#)/g, '$1preview-')
        .replace(/\saria-labelledby="([^"]*)"/g, (_, ids) => ` aria-labelledby="${ids.replace(/\S+/g, 'preview-$&')}"`);
    block.querySelectorAll('.footnote-reference, .buttons').forEach(extra => extra.remove());
    block.querySelectorAll('a').forEach(link => link.replaceWith(...link.childNodes));
    return block;
}

let shown = null; // the link with the card
let wanted = null; // the link that will have it
let dismissed = null; // the link whose card was sent away, until the pointer has left it
let timer;

async function show(link, x) {
    const [elements] = await Promise.all([behind(link), styled]);
    if (wanted !== link || !elements.length) {
        return;
    }
    hide();
    shown = link;
    card.replaceChildren(...elements.map(plain));
    card.hidden = false;
    place(link, x);
    link.setAttribute('aria-describedby', card.id);
}

// Below the line of the link that the pointer is on, or above it where there is more room.
function place(link, x) {
    const lines = [...link.getClientRects()];
    const line = lines.find(({ left, right }) => x >= left && x <= right) ?? lines[0];
    const { clientWidth, clientHeight } = document.documentElement;
    const left = Math.max(GAP, Math.min(line.left, clientWidth - card.offsetWidth - GAP));
    const fitsBelow = line.bottom + GAP + card.offsetHeight <= clientHeight;
    const isAbove = !fitsBelow && line.top > clientHeight - line.bottom;
    const top = isAbove ? line.top - GAP - card.offsetHeight : line.bottom + GAP;
    card.style.left = `${left + scrollX}px`;
    card.style.top = `${top + scrollY}px`;
}

function hide() {
    card.hidden = true;
    shown?.removeAttribute('aria-describedby');
    shown = null;
}

function want(link, x) {
    clearTimeout(timer);
    wanted = link;
    if (link === shown) {
        return;
    }
    timer = setTimeout(link ? () => show(link, x) : hide, link ? BEFORE : AFTER);
}

// What the pointer or the focus has come to: a link, the card or anything else.
export function meet({ target, clientX }) {
    if (card.contains(target)) {
        want(shown);
        return;
    }
    const link = subjectAround(target);
    if (!link || link !== dismissed) {
        dismissed = null;
        want(link, clientX);
    }
}

/** A finger has come to a link: no pointer rests on it. */
export function tap(link, x) {
    clearTimeout(timer);
    wanted = link;
    show(link, x);
}

document.addEventListener('pointerover', event => {
    if (event.pointerType !== 'touch') {
        meet(event);
    }
});
document.addEventListener('focusin', event => {
    if (event.target.matches(':focus-visible')) {
        meet(event);
    }
});
document.addEventListener('focusout', () => want(null));
document.addEventListener('keydown', event => {
    if (event.key === 'Escape' && (shown || wanted)) {
        dismissed = shown ?? wanted;
        want(null);
        hide();
    }
});
addEventListener('pagehide', hide);
document.addEventListener('click', hide);
