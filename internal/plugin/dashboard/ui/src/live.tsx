import { useEffect, useMemo, useState } from 'preact/hooks';
import type { Detail, TileState } from './types';
import { inOrder } from './store';
import type { Workload } from './store';
import { countTiles } from './grouping';
import type { By } from './grouping';
import { TILE_HELP, TILE_STATES, TILE_WORDS, plural } from './format';
import { Icon, TILE_ICONS } from './icons';
import { TileGrid } from './tiles';
import { PodPanel } from './panel';
import { WavesCard } from './waves';
import { BudgetsCard } from './budgets';
import { TimelineCard } from './timeline';
import { setQuery } from './route';

const MANY = 150;
const GROUPS: [By, string][] = [
  ['nothing', 'nothing'],
  ['revision', 'revision'],
  ['subset', 'subset'],
  ['node', 'node'],
  ['state', 'state'],
];

function Legend({ counts, shown }: { counts: Record<string, number>; shown: Set<string> }) {
  const press = (s: TileState) => {
    const next = new Set(shown);
    if (!next.delete(s)) next.add(s);
    setQuery({ show: next.size === TILE_STATES.length ? '' : [...next].join(',') });
  };
  return (
    <div class="legend" role="group" aria-label="Legend: show only pods in these states">
      {TILE_STATES.map((s) => (
        <button
          type="button"
          key={s}
          aria-pressed={shown.has(s)}
          title={TILE_HELP[s]}
          data-none={!counts[s]}
          data-legend={s}
          onClick={() => press(s)}
        >
          <span class="swatch" data-state={s}>
            <Icon name={TILE_ICONS[s]} />
          </span>
          {TILE_WORDS[s]} <span class="num">{counts[s] ?? 0}</span>
        </button>
      ))}
      {shown.size > 0 && (
        <button type="button" onClick={() => setQuery({ show: '' })}>
          Show all
        </button>
      )}
    </div>
  );
}

interface Props {
  state: Workload;
  version: number;
  detail: Detail;
  query: URLSearchParams;
}

export function Live({ state, version, detail, query }: Props) {
  const [chosen, setChosen] = useState('');
  const [named, setNamed] = useState<boolean>();
  const show = query.get('show') ?? '';
  const shown = useMemo(() => new Set(show.split(',').filter(Boolean)), [show]);
  const hasSubsets = state.subsets.length > 0;
  const asked = query.get('group') as By | null;
  const by: By = asked && GROUPS.some(([g]) => g === asked) ? asked : hasSubsets ? 'subset' : 'nothing';

  const all = useMemo(() => inOrder(state), [state, version]);
  const tiles = useMemo(() => (shown.size ? all.filter((t) => shown.has(t.state)) : all), [all, shown]);
  const counts = useMemo(() => countTiles(all), [all]);
  const withNames = named ?? all.length <= MANY;

  // What did not change is not drawn again with each message about pods.
  const timeline = useMemo(() => <TimelineCard events={state.events} />, [state.events]);
  const waves = useMemo(() => <WavesCard preview={state.preview} />, [state.preview]);
  const budgets = useMemo(() => <BudgetsCard budgets={state.budgets} />, [state.budgets]);

  const close = () => {
    const id = chosen;
    setChosen('');
    document.querySelector<HTMLElement>(`.tiles [data-id="${CSS.escape(id)}"]`)?.focus({ preventScroll: true });
  };
  useEffect(() => {
    if (!chosen) return;
    const onKey = (e: KeyboardEvent) => {
      if (e.key === 'Escape' && !e.defaultPrevented) close();
    };
    window.addEventListener('keydown', onKey);
    return () => window.removeEventListener('keydown', onKey);
  }, [chosen]);

  return (
    <div class="live">
      <div class="col">
        <section class="card" aria-labelledby="pods-h">
          <div class="cardhead">
            <h2 id="pods-h">Pods</h2>
            <span class="dim num">
              {!state.podsSynced && !all.length
                ? 'The pods are loading.'
                : shown.size
                  ? `${tiles.length} of ${plural(all.length, 'pod')}`
                  : plural(all.length, 'pod')}
            </span>
            <span class="grow" />
            <label class="check">
              <input type="checkbox" checked={withNames} onChange={(e) => setNamed(e.currentTarget.checked)} /> Names
            </label>
            <label class="inline">
              <span>Group by</span>
              <select name="group" value={by} onChange={(e) => setQuery({ group: e.currentTarget.value })}>
                {GROUPS.map(([key, word]) => (
                  <option key={key} value={key}>
                    {word}
                  </option>
                ))}
              </select>
            </label>
          </div>
          <Legend counts={counts} shown={shown} />
          {by === 'subset' && hasSubsets && (
            <p class="dim">
              Subsets from {state.subsetsFrom}.
              {state.subsets.filter((s) => s.message).map((s) => ` ${s.name}: ${s.message}`)}
            </p>
          )}
          {(state.podsSynced || all.length > 0) && (
            <TileGrid
              tiles={tiles}
              by={by}
              subsets={state.subsets}
              named={withNames}
              workload={detail.name}
              chosen={chosen}
              onChoose={(id) => setChosen(id)}
            />
          )}
        </section>
        {timeline}
      </div>
      <div class="col side">
        {chosen && <PodPanel id={chosen} tile={state.pods.get(chosen)} plan={state.plans.get(chosen)} onClose={close} />}
        {waves}
        {budgets}
      </div>
    </div>
  );
}
