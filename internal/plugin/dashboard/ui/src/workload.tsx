import { useEffect, useMemo, useState } from 'preact/hooks';
import { Notes, Shell } from './shell';
import { Header } from './header';
import { Live } from './live';
import { Revisions } from './revisions';
import { WhatIf } from './whatif';
import { useStream } from './hooks';
import { workloadPath } from './api';
import { newWorkload, reduceWorkload } from './store';
import type { Workload } from './store';
import { overviewAddress, setQuery } from './route';
import { announcement } from './format';
import type { Session, Target, WorkloadMessage } from './types';

const TABS = [
  ['', 'Live'],
  ['revisions', 'Revisions'],
  ['what-if', 'What if'],
] as const;

interface Props {
  of: Target;
  session: Session | undefined;
  query: URLSearchParams;
  failure: string;
}

export function WorkloadPage({ of, session, query, failure }: Props) {
  const { state, version, connection } = useStream<Workload, WorkloadMessage>(workloadPath(of), newWorkload, reduceWorkload);
  const [message, setMessage] = useState('');
  const tab = query.get('tab') ?? '';
  const detail = state.detail;
  useEffect(() => {
    document.title = `${of.name} · Afloat`;
  }, [of.name]);

  // Numbers change all the time: only another state, or another reason to wait, is said aloud.
  const said = useMemo(
    () => (state.gone ? `${of.name} was deleted.` : detail ? announcement(detail) : ''),
    [state.gone, detail?.state, detail?.waiting?.split(':')[0]],
  );
  const notes = [...new Set([...state.notes, ...(state.explanation?.notes ?? [])])];

  return (
    <Shell session={session} connection={connection} say={said}>
      <nav class="crumbs" aria-label="Where you are">
        <a href={overviewAddress()}>Workloads</a> <span aria-hidden="true">/</span>{' '}
        {of.namespace ? <a href={`/?namespace=${encodeURIComponent(of.namespace)}`}>{of.namespace}</a> : <span>cluster</span>}
      </nav>
      {failure && <p class="banner bad">{failure}</p>}
      {state.gone && <p class="banner warn">This workload was deleted. The page shows what was known last.</p>}
      {!detail ? (
        <>
          <h1>{of.name}</h1>
          {!state.gone && <p class="dim">The workload is loading.</p>}
        </>
      ) : (
        <>
          <Header of={of} state={state} detail={detail} onApplied={setMessage} />
          {message && (
            <p class="banner good" role="status">
              <span class="grow">{message}</span>
              <button type="button" class="quiet" onClick={() => setMessage('')}>
                Close
              </button>
            </p>
          )}
          <Notes notes={notes} />
          <nav class="tabs" aria-label="Views of the workload">
            {TABS.map(([key, word]) => (
              <button type="button" key={key} aria-current={tab === key ? 'page' : undefined} onClick={() => setQuery({ tab: key })}>
                {word}
              </button>
            ))}
          </nav>
          {tab === 'revisions' ? (
            <Revisions of={of} detail={detail} onApplied={setMessage} />
          ) : tab === 'what-if' ? (
            <WhatIf of={of} detail={detail} onApplied={setMessage} />
          ) : (
            <Live state={state} version={version} detail={detail} query={query} />
          )}
        </>
      )}
    </Shell>
  );
}
