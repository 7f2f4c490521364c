import { useEffect, useRef, useState } from 'preact/hooks';
import { ApiError, apply, makePlan } from './api';
import type { Change, Plan, Target } from './types';
import { PreviewView } from './waves';
import { Diff } from './diff';

interface Props {
  of: Target;
  /** What is to be changed; undefined as long as the fields hold nothing that can be planned. */
  change: Change | undefined;
  /** Makes the plan without being asked when the change is another. */
  auto?: boolean;
  /** The generation of the document that the change is made from, if it is made from one. */
  from?: number;
  /** Why the user may not apply, in words. */
  mayNot?: string;
  onApplied: (generation: number) => void;
  onCancel?: () => void;
}

/** The change as it was planned: "the revision before" is another one once the controller has seen a change. */
export function planned(change: Change, plan: Plan): Change {
  return change.action === 'undo' ? { ...change, toRevision: plan.toRevision ?? change.toRevision } : change;
}

/** What is said when a change could not be applied. Without an answer nobody knows whether it was. */
export function refusal(err: Error): string {
  const status = err instanceof ApiError ? err.status : 0;
  if (status === 409) return `Nothing was applied, since the workload was changed in the meantime. ${err.message}`;
  if (status >= 400 && status < 500) return `Nothing was applied. ${err.message}`;
  return `It is not known whether the change was applied: look at the workload. ${err.message}`;
}

/** First the plan of a change, then the button that applies it. */
export function PlanAndApply({ of, change, auto, from, mayNot, onApplied, onCancel }: Props) {
  const [plan, setPlan] = useState<{ of: string; plan: Plan }>();
  const [error, setError] = useState('');
  const [busy, setBusy] = useState<'' | 'plan' | 'apply'>('');
  const abort = useRef<AbortController>();
  const key = change ? JSON.stringify(change) : '';

  const make = async () => {
    if (!change) return;
    abort.current?.abort();
    const mine = new AbortController();
    abort.current = mine;
    setBusy('plan');
    setError('');
    setPlan(undefined);
    try {
      const made = await makePlan(of, change, mine.signal);
      if (abort.current === mine) setPlan({ of: key, plan: made });
    } catch (err) {
      if (abort.current === mine && !mine.signal.aborted) setError((err as Error).message);
    } finally {
      if (abort.current === mine) setBusy('');
    }
  };

  useEffect(() => {
    if (auto && key) void make();
  }, [key]);
  useEffect(() => () => abort.current?.abort(), []);

  const fresh = plan?.of === key ? plan.plan : undefined;

  const doApply = async () => {
    if (!change || !fresh) return;
    setBusy('apply');
    setError('');
    try {
      const { generation } = await apply(of, planned(change, fresh), fresh.generation);
      setBusy('');
      onApplied(generation);
    } catch (err) {
      setBusy('');
      setPlan(undefined);
      setError(refusal(err as Error));
    }
  };

  const previews = fresh?.previews ?? [];
  const again = !!error || (!!plan && !fresh);
  return (
    <div class="planbox">
      <div aria-live="polite">
        {busy === 'plan' && <p class="dim">The plan is being made. Nothing is changed by this.</p>}
        {error && (
          <p class="banner bad" role="alert">
            {error}
          </p>
        )}
        {plan && !fresh && !busy && <p class="dim">The fields were changed since the plan was made.</p>}
      </div>
      {fresh && (
        <div class="plan" data-test="plan">
          {from !== undefined && from !== fresh.generation && (
            <p class="banner warn" role="alert">
              The workload was changed since this YAML was loaded. Applying it takes that change back: the difference below
              shows what goes.
            </p>
          )}
          {fresh.note && <p class="banner note">{fresh.note}</p>}
          {previews.map((p, i) => (
            <section key={i}>
              {previews.length > 1 && (
                <h3>
                  {p.kind} {p.name}
                </h3>
              )}
              <PreviewView preview={p} />
            </section>
          ))}
          <h3>What changes in the YAML</h3>
          <Diff before={fresh.before} after={fresh.after} same="The YAML stays the same." />
        </div>
      )}
      <div class="buttons">
        {onCancel && (
          <button type="button" onClick={onCancel}>
            Cancel
          </button>
        )}
        {(!auto || again) && !fresh && (
          <button type="button" class={auto ? '' : 'primary'} disabled={!change || !!busy} onClick={make}>
            {again ? 'Make the plan again' : 'Show the plan'}
          </button>
        )}
        {(fresh || auto) && (
          <button type="button" class="primary" disabled={!fresh || !!busy || !!mayNot} onClick={doApply}>
            {busy === 'apply' ? 'Applying' : 'Apply'}
          </button>
        )}
      </div>
      {mayNot && <p class="dim">{mayNot}</p>}
    </div>
  );
}
