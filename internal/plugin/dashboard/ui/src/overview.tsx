import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { Shell, Notes } from './shell';
import { Chip } from './icons';
import { useSize, useStream } from './hooks';
import { overviewPath } from './api';
import { newOverview, reduceOverview } from './store';
import type { Overview } from './store';
import { chosenRows, countStates, filterOf, seenRows } from './rows';
import { keepOverview, setQuery, workloadAddress } from './route';
import { Filters } from './filters';
import { plural, progressText, readyText, share, shortImage } from './format';
import type { OverviewMessage, Row, Session } from './types';

const COLUMNS = ['Name', 'Kind', 'Namespace', 'State', 'Progress', 'Ready', 'What it waits for'];

export function Bar({ row }: { row: Row }) {
  const text = progressText(row);
  if (!text) return <span class="dim">–</span>;
  const percent = Math.round(100 * share(row.updated, row.target ?? row.desired));
  return (
    <span class="progress">
      <span class="bar" aria-hidden="true">
        <span class="fill" data-state={row.state} style={{ width: `${percent}%` }} />
      </span>
      <span class="num">{text.replace(' updated', '')}</span>
      <span class="sr"> updated</span>
    </span>
  );
}

function RowView({ row, index, height }: { row: Row; index: number; height: number }) {
  const why = row.waiting || (row.state === 'failed' || row.state === 'rolling' ? row.line : '') || '';
  const images = (row.images ?? []).map(shortImage).join(', ');
  return (
    <div role="row" class="row" aria-rowindex={index + 2} data-state={row.state} style={{ top: `${index * height}px`, height: `${height}px` }}>
      <span role="cell" class="c-name">
        <a href={workloadAddress(row)} title={images}>
          {row.name}
        </a>
      </span>
      <span role="cell" class="c-kind" title={row.kind}>
        {row.kind}
      </span>
      <span role="cell" class="c-ns" title={row.namespace}>
        {row.namespace || '(cluster)'}
      </span>
      <span role="cell" class="c-state">
        <Chip state={row.state} />
      </span>
      <span role="cell" class="c-progress">
        <Bar row={row} />
      </span>
      <span role="cell" class="c-ready num">
        {readyText(row).replace(' ready', '') || '–'}
        <span class="sr"> ready</span>
      </span>
      <span role="cell" class="c-why" title={why}>
        {why}
      </span>
    </div>
  );
}

function Table({ rows }: { rows: Row[] }) {
  const box = useRef<HTMLDivElement>(null);
  const { width, height } = useSize(box);
  const [top, setTop] = useState(0);
  const rowHeight = width && width < 760 ? 92 : 38;
  const { from, to } = seenRows(top, height || 600, rowHeight, rows.length);
  return (
    <div class="table" data-narrow={rowHeight > 50} role="table" aria-label="Workloads" aria-rowcount={rows.length + 1}>
      <div role="rowgroup" class="thead">
        <div role="row" class="row" aria-rowindex={1}>
          {COLUMNS.map((name) => (
            <span role="columnheader" key={name}>
              {name}
            </span>
          ))}
        </div>
      </div>
      <div
        class="tbody"
        role="rowgroup"
        ref={box}
        tabIndex={0}
        aria-label="Workloads that the filters leave"
        onScroll={(e) => {
          const at = e.currentTarget.scrollTop;
          setTop(at - (at % rowHeight));
        }}
      >
        <div class="space" role="presentation" style={{ height: `${rows.length * rowHeight}px` }}>
          {rows.slice(from, to).map((row, i) => (
            <RowView key={row.id} row={row} index={from + i} height={rowHeight} />
          ))}
        </div>
      </div>
    </div>
  );
}

interface Props {
  session: Session | undefined;
  query: URLSearchParams;
  failure: string;
}

export function OverviewPage({ session, query, failure }: Props) {
  const filter = filterOf(query);
  const { state, version, connection } = useStream<Overview, OverviewMessage>(
    overviewPath(filter.namespace),
    newOverview,
    reduceOverview,
    200,
  );
  useEffect(() => {
    document.title = 'Workloads · Afloat';
  }, []);
  const search = query.toString();
  useEffect(keepOverview, [search]);
  const rows = useMemo(() => chosenRows(state.rows.values(), filter), [state, version, search]);
  const counts = useMemo(
    () => countStates(chosenRows(state.rows.values(), { ...filter, state: '' })),
    [state, version, search],
  );
  const said = state.synced
    ? `${plural(rows.length, 'workload')}, ${counts.failed ?? 0} failed, ${counts.waiting ?? 0} waiting.`
    : '';
  return (
    <Shell session={session} connection={connection} say={said} wide>
      <div class="heading">
        <h1>Workloads</h1>
        <span class="dim" data-test="count">
          {state.synced || rows.length ? plural(rows.length, 'workload') : 'The list is loading.'}
        </span>
      </div>
      {failure && <p class="banner bad">{failure}</p>}
      <Filters session={session} filter={filter} counts={counts} />
      <Notes notes={state.notes} />
      {state.synced && !rows.length ? (
        <p class="empty">
          {state.rows.size
            ? 'No workload fits the filters. '
            : filter.namespace
              ? `There are no workloads in namespace ${filter.namespace}. `
              : 'There are no workloads that Afloat rolls out. '}
          {search && (
            <button type="button" onClick={() => setQuery({ namespace: '', kind: '', state: '', q: '' })}>
              Clear the filters
            </button>
          )}
        </p>
      ) : (
        <Table rows={rows} />
      )}
    </Shell>
  );
}
