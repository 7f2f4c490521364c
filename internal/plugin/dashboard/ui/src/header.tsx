import type { Detail, Target } from './types';
import type { Workload } from './store';
import { Actions } from './actions';
import { Chip, Icon } from './icons';
import { ago, progressText, readyText, share, shortImage, when } from './format';
import { useNow } from './hooks';

function Conditions({ detail }: { detail: Detail }) {
  const now = useNow();
  const list = detail.conditions ?? [];
  if (!list.length) return null;
  return (
    <details class="conditions">
      <summary>
        Conditions: {list.map((c) => `${c.type} is ${c.status}`).join(', ')}
      </summary>
      <ul class="plain">
        {list.map((c) => (
          <li key={c.type}>
            <b>
              {c.type} is {c.status}
            </b>
            {c.since && (
              <span class="dim" title={when(c.since)}>
                {' '}
                since {ago(c.since, now)}
              </span>
            )}
            {(c.reason || c.message) && `: ${[c.reason, c.message].filter(Boolean).join(': ')}`}
          </li>
        ))}
      </ul>
    </details>
  );
}

interface Props {
  of: Target;
  state: Workload;
  detail: Detail;
  onApplied: (text: string) => void;
}

export function Header({ of, state, detail, onApplied }: Props) {
  const x = state.explanation;
  const goal = detail.target ?? detail.desired;
  const waiting = x?.waiting || detail.waiting;
  const problems = [...new Set([...(x?.problems ?? []), ...(x?.warnings ?? [])])];
  const summary = x?.summary?.length ? x.summary : detail.line ? [detail.line] : [];
  const done = share(detail.updated, goal);
  return (
    <div class="whead">
      <div class="heading">
        <h1>
          <span class="dim">{detail.kind}</span> {detail.name}
        </h1>
        <Chip state={detail.state} />
        {detail.paused && detail.state !== 'paused' && <Chip state="paused" />}
        <span class="grow" />
        <Actions of={of} detail={detail} onApplied={onApplied} />
      </div>
      <div class="facts">
        {progressText(detail) && (
          <span
            class="bar big"
            role="progressbar"
            aria-label="Progress of the rollout"
            aria-valuemin={0}
            aria-valuemax={100}
            aria-valuenow={Math.round(100 * done)}
            aria-valuetext={progressText(detail)}
          >
            <span class="fill" data-state={detail.state} style={{ width: `${100 * done}%` }} />
          </span>
        )}
        {progressText(detail) && <b class="num">{progressText(detail)}</b>}
        {readyText(detail) && <span class="num">{readyText(detail)}</span>}
        {detail.updateRevision && (
          <span class="dim">
            {detail.currentRevision && detail.currentRevision !== detail.updateRevision && (
              <>
                <span class="mono">{detail.currentRevision}</span> →{' '}
              </>
            )}
            <span class="mono">{detail.updateRevision}</span>
          </span>
        )}
        {(detail.images ?? []).map((image) => (
          <span class="mono dim" key={image} title={image}>
            {shortImage(image)}
          </span>
        ))}
        {detail.generation !== undefined && <span class="dim">generation {detail.generation}</span>}
      </div>
      {waiting && (
        <p class="banner warn">
          <Icon name="glass" />
          <span>
            <b>It waits.</b> {waiting}
          </span>
        </p>
      )}
      {problems.map((p) => (
        <p class="banner bad" key={p}>
          <Icon name="bang" />
          <span>{p}</span>
        </p>
      ))}
      {summary.map((s) => (
        <p class="summary" key={s}>
          {s}
        </p>
      ))}
      <Conditions detail={detail} />
    </div>
  );
}
