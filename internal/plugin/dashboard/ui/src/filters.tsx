import { useEffect, useState } from 'preact/hooks';
import type { Session } from './types';
import type { Filter } from './rows';
import { setQuery } from './route';
import { ROW_STATES, ROW_WORDS } from './format';
import { Chip } from './icons';

interface Props {
  session: Session | undefined;
  filter: Filter;
  counts: Record<string, number>;
}

const value = (e: Event) => (e.currentTarget as HTMLInputElement | HTMLSelectElement).value;

const changeNamespace = (e: Event) => setQuery({ namespace: value(e).trim() });

/** For users who may not list namespaces. What is being typed stays when the page is drawn anew. */
function NamespaceField({ session, filter }: { session: Session; filter: Filter }) {
  const [text, setText] = useState(filter.namespace);
  useEffect(() => setText(filter.namespace), [filter.namespace]);
  return (
    <input
      name="namespace"
      placeholder={session.namespace ? `all, or one like ${session.namespace}` : 'all'}
      value={text}
      onInput={(e) => setText(value(e))}
      onChange={changeNamespace}
      spellcheck={false}
      autocomplete="off"
    />
  );
}

function Namespace({ session, filter }: { session: Session | undefined; filter: Filter }) {
  const list = session?.namespaces ?? [];
  if (session && !list.length) return <NamespaceField session={session} filter={filter} />;
  const known = !filter.namespace || list.includes(filter.namespace) ? list : [filter.namespace, ...list];
  return (
    <select name="namespace" value={filter.namespace} onChange={changeNamespace}>
      <option value="">all</option>
      {known.map((n) => (
        <option key={n} value={n}>
          {n}
        </option>
      ))}
    </select>
  );
}

export function Filters({ session, filter, counts }: Props) {
  const kinds = (session?.kinds ?? []).map((k) => k.kind);
  const known = !filter.kind || kinds.includes(filter.kind) ? kinds : [filter.kind, ...kinds];
  return (
    <search class="filters">
      <label>
        <span>Namespace</span>
        <Namespace session={session} filter={filter} />
      </label>
      <label>
        <span>Kind</span>
        <select name="kind" value={filter.kind} onChange={(e) => setQuery({ kind: value(e) })}>
          <option value="">all</option>
          {known.map((k) => (
            <option key={k} value={k}>
              {k}
            </option>
          ))}
        </select>
      </label>
      <label class="grow">
        <span>Search</span>
        <input
          type="search"
          name="q"
          placeholder="name, image or reason"
          value={filter.text}
          onInput={(e) => setQuery({ q: value(e) })}
          spellcheck={false}
        />
      </label>
      <div class="states" role="group" aria-label="State">
        {ROW_STATES.filter((s) => counts[s] || filter.state === s).map((s) => (
          <button
            type="button"
            key={s}
            aria-pressed={filter.state === s}
            aria-label={`${ROW_WORDS[s]}: ${counts[s] ?? 0}`}
            onClick={() => setQuery({ state: filter.state === s ? '' : s })}
          >
            <Chip state={s} /> <span class="num">{counts[s] ?? 0}</span>
          </button>
        ))}
      </div>
    </search>
  );
}
