import type { Budget } from './types';
import { plural, share } from './format';

function BudgetView({ b }: { b: Budget }) {
  const available = b.available ?? 0;
  const desired = b.desired ?? 0;
  const total = Math.max(b.total ?? 0, available, desired, 1);
  const missing = b.unavailable ?? [];
  const tight = (b.allowed ?? 0) <= 0;
  return (
    <li class="budget">
      <div class="bhead">
        <b>{b.name}</b> <span class="dim">{b.kind}</span>
      </div>
      <div class="bbar" aria-hidden="true">
        <span class="fill" data-tight={tight} style={{ width: `${100 * share(available, total)}%` }} />
        <span class="need" style={{ left: `${100 * share(desired, total)}%` }} />
      </div>
      <div>
        {available} of {total} available, {desired} must be.{' '}
        {tight ? <b>No more pod may become unavailable.</b> : `${plural(b.allowed ?? 0, 'more pod')} may become unavailable.`}
      </div>
      {b.message && <div class="dim">{b.message}</div>}
      {missing.length > 0 && (
        <details open={missing.length <= 3}>
          <summary>{plural(missing.length, 'pod uses', 'pods use')} the budget</summary>
          <ul class="users">
            {missing.slice(0, 100).map((u) => (
              <li key={u.pod}>
                <span class="mono">{u.pod}</span> <span class="dim">{u.why}</span>
              </li>
            ))}
            {missing.length > 100 && <li class="dim">and {missing.length - 100} more</li>}
          </ul>
        </details>
      )}
    </li>
  );
}

export function BudgetsCard({ budgets }: { budgets: Budget[] }) {
  if (!budgets.length) return null;
  return (
    <section class="card" aria-labelledby="budgets-h">
      <div class="cardhead">
        <h2 id="budgets-h">Budgets</h2>
      </div>
      <ul class="plain">
        {budgets.map((b) => (
          <BudgetView key={`${b.kind}/${b.name}`} b={b} />
        ))}
      </ul>
    </section>
  );
}
