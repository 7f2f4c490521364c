import { useEffect, useState } from 'preact/hooks';
import { getRevisions } from './api';
import type { Detail, Revision, Target } from './types';
import { ActionDialog } from './confirm';
import { whyNot } from './actions';
import { Diff } from './diff';
import { ago, when } from './format';

/** The two revisions that are compared first: the present and the new one, or else the newest two. */
export function firstPair(list: Revision[]): [number, number] | undefined {
  if (!list.length) return undefined;
  const update = list.find((r) => r.update) ?? list[0]!;
  const current = list.find((r) => r.current && r !== update) ?? list.find((r) => r !== update) ?? update;
  return [current.number, update.number];
}

interface Props {
  of: Target;
  detail: Detail;
  onApplied: (text: string) => void;
}

export function Revisions({ of, detail, onApplied }: Props) {
  const [list, setList] = useState<Revision[]>();
  const [error, setError] = useState('');
  const [pair, setPair] = useState<[number, number]>();
  const [undo, setUndo] = useState(0);

  useEffect(() => {
    let on = true;
    getRevisions(of).then(
      (found) => {
        if (!on) return;
        setError('');
        setList(found);
        setPair((old) => (old && old.every((n) => found.some((r) => r.number === n)) ? old : firstPair(found)));
      },
      (err: Error) => on && setError(err.message),
    );
    return () => void (on = false);
  }, [detail.updateRevision, detail.currentRevision, detail.generation]);

  if (error) return <p class="banner bad">{error}</p>;
  if (!list) return <p class="dim">The revisions are loading.</p>;
  if (!list.length || !pair) return <p class="dim">There are no revisions.</p>;
  const [a, b] = pair;
  const old = list.find((r) => r.number === a);
  const fresh = list.find((r) => r.number === b);
  const why = whyNot(detail, 'undo');
  return (
    <div class="revisions">
      <section class="card" aria-labelledby="revs-h">
        <div class="cardhead">
          <h2 id="revs-h">Revisions</h2>
        </div>
        <table>
          <thead>
            <tr>
              <th scope="col">From</th>
              <th scope="col">To</th>
              <th scope="col">Revision</th>
              <th scope="col">Created</th>
              <th scope="col">Cause</th>
              <th scope="col">
                <span class="sr">Undo</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {list.map((r) => (
              <tr key={r.number}>
                <td>
                  <input type="radio" name="from" aria-label={`Compare from revision ${r.number}`} checked={a === r.number} onChange={() => setPair([r.number, b])} />
                </td>
                <td>
                  <input type="radio" name="to" aria-label={`Compare to revision ${r.number}`} checked={b === r.number} onChange={() => setPair([a, r.number])} />
                </td>
                <td>
                  <b>{r.number}</b> <span class="mono">{r.name}</span>
                  {r.update && <span class="tag">new</span>}
                  {r.current && <span class="tag">current</span>}
                </td>
                <td title={when(r.created)}>{ago(r.created, Date.now())}</td>
                <td class="cause">{r.cause && r.cause !== '<none>' ? r.cause : <span class="dim">none</span>}</td>
                <td>
                  {!r.update && (
                    <button type="button" aria-disabled={!!why} title={why || undefined} aria-description={why || undefined} onClick={() => !why && setUndo(r.number)}>
                      Go back to this revision
                    </button>
                  )}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
        {why && <p class="dim">{why}</p>}
      </section>
      <section class="card" aria-labelledby="revdiff-h">
        <div class="cardhead">
          <h2 id="revdiff-h">
            From revision {a} to revision {b}
          </h2>
        </div>
        {old && fresh && <Diff before={old.template} after={fresh.template} same="The two templates are the same." />}
      </section>
      {undo > 0 && (
        <ActionDialog
          action="undo"
          of={of}
          detail={detail}
          toRevision={undo}
          onClose={() => setUndo(0)}
          onApplied={(generation) => onApplied(`The workload goes back to revision ${undo}. The generation is now ${generation}.`)}
        />
      )}
    </div>
  );
}
