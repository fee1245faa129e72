// The search: the box is mdBook's, what it finds comes from here. MiniSearch, the sections of the book and their index (crates/xtask/src/search.rs)
// are loaded when the box is first opened, as plain scripts, so that a page opened from a disk may load them, too.
'use strict';
// What a word is. The build, which has no document, makes the index by the same rules.
globalThis.bookWords = (() => {
    // with_mask and d_k are words; they are also found by their parts. dₖ is spelt like d_k, √ like sqrt.
    const WORD = /[\p{L}\p{N}_]+/gu;
    const words = text => text.replace(/√/g, ' sqrt ').match(WORD) ?? [];
    const parts = word => [word, ...word.includes('_') ? word.split('_').filter(Boolean) : []];
    const spelt = word => word.normalize('NFKD').replace(/[\p{M}_]/gu, '').toLowerCase();
    const fields = ['title', 'names', 'chapter', 'text'];
    return { WORD, words, parts, spelt, options: { fields, tokenize: text => words(text).flatMap(parts), processTerm: spelt } };
})();
globalThis.document && (() => {
    const [area, form, box, outer, header, list, toggle] = ['search-wrapper', 'searchbar-outer', 'searchbar', 'searchresults-outer',
        'searchresults-header', 'searchresults', 'search-toggle'].map(id => document.getElementById(`mdbook-${id}`));
    const theme = new URL('.', document.currentScript.src);
    const MOST = 30;
    const EXCERPT = 220; // characters, and twice that if the first sentence is so long

    area.setAttribute('role', 'search');
    box.setAttribute('aria-label', 'Search this book');
    box.removeAttribute('aria-describedby'); // mdBook's has no such element; the number of results is announced instead
    header.setAttribute('role', 'status');

    /* Words ---------------------------------------------------------------------------------------------------------- */

    const { WORD, words, parts, spelt, options: ofIndex } = bookWords;
    const plain = text => words(text).map(spelt).join(' ');
    const isOneOf = terms => word => parts(word).some(part => terms.has(spelt(part)));

    /* Finding -------------------------------------------------------------------------------------------------------- */

    let index;
    let loading;
    const script = name => new Promise((resolve, reject) => {
        const element = document.createElement('script');
        Object.assign(element, { src: new URL(`on-demand/${name}`, theme), onload: resolve, onerror: reject });
        document.head.append(element);
    });
    const load = () => loading ??= Promise.all(['minisearch.js', 'sections.js'].map(script)).then(() => {
        index = MiniSearch.loadJSON(bookIndex, ofIndex);
    });

    // What answers a query, best first. A word that the book doesn't have may have been misspelt.
    function find(query) {
        const phrase = plain(query);
        const prefix = word => word.length > 2;
        const isKnown = word => index.search(word, { prefix }).length > 0;
        const options = {
            tokenize: words,
            prefix,
            fuzzy: word => word.length > 3 && !isKnown(word) && 0.3,
            maxFuzzy: 2,
            boost: { title: 4, names: 4 },
        };
        // Sections with all of the words. If there are none (in what was copied from a page, formulas are spelt in other ways), with any of them.
        const all = index.search(query, { ...options, combineWith: 'AND' });
        const found = (all.length ? all : index.search(query, options)).slice(0, 2 * MOST);
        const rank = ({ id, score }) => {
            const { url, title, names, text } = bookSections[id];
            const isName = [title, ...names].some(name => plain(name) === phrase);
            const isQuote = phrase.includes(' ') && plain(text).includes(phrase);
            return score * (isName ? 4 : isQuote ? 3 : 1) * (url.includes('#') ? 1 : 1.7);
        };
        return found.map(result => ({ terms: new Set(result.terms), rank: rank(result), ...bookSections[result.id] }))
            .sort((a, b) => b.rank - a.rank).slice(0, MOST);
    }

    /* Showing -------------------------------------------------------------------------------------------------------- */

    // The sentence with most of the terms, and what follows it. A section that has none of them was found by a name that others give it.
    function excerpt({ names, text, terms }) {
        const sentences = text.split(/(?<=[.?!])\s+|\n/);
        const counts = sentences.map(sentence => new Set((sentence.match(WORD) ?? []).filter(isOneOf(terms)).map(spelt)).size);
        const most = Math.max(...counts);
        const best = counts.indexOf(most);
        let shown = sentences[best].replace(/^[· ]+/, '');
        for (const next of sentences.slice(best + 1)) {
            if (shown.length + next.length > EXCERPT || !/[.?!:]$/.test(shown)) {
                break;
            }
            shown += ` ${next}`;
        }
        if (shown.length > 2 * EXCERPT) {
            shown = `${shown.slice(0, 2 * EXCERPT).replace(/\S*$/, '')}…`;
        }
        const matching = names.filter(name => words(name).some(isOneOf(terms)));
        return most === 0 && matching.length ? `${matching.join(', ')}: ${shown}` : shown;
    }

    function entry(result) {
        const { url, chapter, title, terms } = result;
        const link = document.createElement('a');
        const [page, hash] = url.split('#');
        link.href = new URL(`../${page}?${new URLSearchParams({ highlight: [...terms].join(' ') })}${hash ? `#${hash}` : ''}`, theme);
        link.textContent = chapter === title ? title : `${chapter} › ${title}`;
        const teaser = document.createElement('span');
        teaser.className = 'teaser';
        excerpt(result).split(/([\p{L}\p{N}_]+)/u).forEach(piece => {
            const isTerm = piece && isOneOf(terms)(piece);
            teaser.append(isTerm ? Object.assign(document.createElement('em'), { textContent: piece }) : piece);
        });
        const item = document.createElement('li');
        item.append(link, teaser);
        return item;
    }

    async function show() {
        const query = box.value.trim();
        outer.classList.toggle('hidden', !query);
        form.classList.add('searching');
        try {
            await load();
        } catch {
            header.textContent = 'This copy of the book has no search: `cargo xtask build` adds it.';
            return;
        } finally {
            form.classList.remove('searching');
        }
        if (query === box.value.trim()) {
            const results = query ? find(query) : [];
            const count = results.length === 0 ? 'No results' : results.length === 1 ? '1 result' : `${results.length} results`;
            header.textContent = query && `${count} for “${query}”`;
            list.replaceChildren(...results.map(entry));
        }
    }

    // The query is in the address, so that it can be sent and comes back with the back button.
    function keep(query) {
        const url = new URL(location);
        const isNew = query && !url.searchParams.has('search');
        url.searchParams.delete('highlight');
        url.searchParams.delete('search');
        if (query) {
            url.searchParams.set('search', query);
            url.hash = '';
        }
        if (url.href !== location.href) {
            history[isNew ? 'pushState' : 'replaceState']({}, '', url);
        }
    }

    /* In the text ---------------------------------------------------------------------------------------------------- */

    function mark(query) {
        const isTerm = isOneOf(new Set(query.split(' ').map(spelt)));
        const texts = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
        const ranges = [];
        while (texts.nextNode()) {
            const text = texts.currentNode;
            for (const { 0: word, index: start } of text.parentElement.closest('svg, script, .katex') ? [] : text.data.matchAll(WORD)) {
                if (isTerm(word)) {
                    const range = document.createRange();
                    range.setStart(text, start);
                    range.setEnd(text, start + word.length);
                    ranges.push(range);
                }
            }
        }
        CSS.highlights?.set('search', new Highlight(...ranges));
    }

    function unmark() {
        if (CSS.highlights?.delete('search')) {
            keep('');
        }
    }

    /* Opening and closing -------------------------------------------------------------------------------------------- */

    const isOpen = () => !area.classList.contains('hidden');
    function open(yes) {
        area.classList.toggle('hidden', !yes);
        toggle.setAttribute('aria-expanded', yes);
    }
    function begin() {
        open(true);
        scrollTo(0, 0);
        box.focus();
        box.select();
        // Nothing takes the focus before the page is shown. A search that can't be loaded is for show() to report.
        load().then(() => isOpen() && document.activeElement === document.body && box.focus(), () => {});
    }
    function followAddress() {
        const asked = new URLSearchParams(location.search);
        const query = asked.get('search') ?? '';
        // A link within the page changes the address, too, and has to lead where it leads.
        if (query !== box.value.trim()) {
            box.value = query;
            open(query !== '');
            if (query) {
                begin();
            }
            show();
        }
        if (asked.has('highlight')) {
            mark(asked.get('highlight'));
        }
    }

    toggle.addEventListener('click', () => isOpen() ? open(false) : begin());
    box.addEventListener('input', () => {
        unmark();
        keep(box.value.trim());
        show();
    });
    form.addEventListener('submit', event => {
        event.preventDefault();
        list.querySelector('a')?.click();
    });
    document.querySelector('main').addEventListener('click', unmark);
    window.addEventListener('popstate', followAddress);

    document.addEventListener('keydown', event => {
        const { key, target } = event;
        if (event.altKey || event.ctrlKey || event.metaKey || (target !== box && target.matches?.('input, select, textarea'))) {
            return;
        }
        const links = [...list.querySelectorAll('a')];
        const at = links.indexOf(target);
        const go = element => {
            event.preventDefault();
            element?.focus();
        };
        if (key === 'Escape') {
            unmark();
            if (isOpen()) {
                keep('');
                open(false);
                go(toggle);
            }
        } else if (target !== box && (key === 's' || key === '/')) {
            event.preventDefault();
            begin();
        } else if (key === 'ArrowDown' && (target === box || at >= 0)) {
            go(links[at + 1]);
        } else if (key === 'ArrowUp' && at >= 0) {
            go(links[at - 1] ?? box);
        }
    });

    box.value = ''; // browsers put back what was typed before a page was loaded again
    followAddress();
})();
