import { useState } from 'preact/hooks';
import type { Preview, Wave } from './types';
import { groupLeft, groupSteps } from './grouping';
import type { StepGroup } from './grouping';
import { length, plural } from './format';
import { Icon } from './icons';

const FIRST = 4;
const CHUNK = 200;

function names(of: { pod?: string; name?: string }[], n: number): string {
  const list = of.slice(0, n).map((s) => s.pod ?? s.name ?? '').filter(Boolean);
  const more = of.length - list.length;
  return list.join(', ') + (more > 0 ? ` and ${more} more` : '');
}

/** Names of pods that open on request, some hundred at a time. */
function Names({ of }: { of: { pod?: string; name?: string; message?: string; reason?: string }[] }) {
  const [open, setOpen] = useState(false);
  const [shown, setShown] = useState(CHUNK);
  if (of.length <= FIRST) return <span class="mono">{names(of, FIRST)}</span>;
  return (
    <details onToggle={(e) => setOpen(e.currentTarget.open)}>
      <summary>
        <span class="mono">{names(of, FIRST)}</span>
      </summary>
      {open && (
        <>
          <ul class="names mono">
            {of.slice(0, shown).map((s, i) => (
              <li key={i}>{s.pod ?? s.name}</li>
            ))}
          </ul>
          {of.length > shown && (
            <button type="button" onClick={() => setShown(shown + CHUNK)}>
              Show {Math.min(CHUNK, of.length - shown)} more
            </button>
          )}
        </>
      )}
    </details>
  );
}

function Action({ group }: { group: StepGroup }) {
  return (
    <li class="action" data-action={group.action}>
      <div>
        <b>
          {group.action}: {plural(group.steps.length, 'pod')}
        </b>
        {group.restarts.length > 0 && <span class="dim"> · restarts {group.restarts.join(', ')}</span>}
      </div>
      <Names of={group.steps} />
      {group.reasons.map((r) => (
        <div class="dim" key={r.text}>
          {r.count < group.steps.length ? `${r.count}: ` : ''}
          {r.text}
        </div>
      ))}
    </li>
  );
}

function Lane({ wave, number, largest }: { wave: Wave; number: number; largest: number }) {
  const steps = wave.steps ?? [];
  const groups = groupSteps(steps);
  const after = wave.afterSeconds ?? 0;
  return (
    <li class="lane">
      <div class="lanehead">
        <span class="lanenum">Wave {number}</span>
        <span>{after > 0 ? `after ${length(after)}` : 'at once'}</span>
        <span class="lanebar" aria-hidden="true">
          {groups.map((g) => (
            <span key={g.action} data-action={g.action} style={{ width: `${(100 * g.steps.length) / largest}%` }} />
          ))}
        </span>
        <span class="num">{steps.length}</span>
      </div>
      <ul class="actions">
        {groups.map((g) => (
          <Action key={g.action} group={g} />
        ))}
        {(wave.hooks ?? []).map((h) => (
          <li class="dim" key={h}>
            It waits for the hook {h}.
          </li>
        ))}
      </ul>
    </li>
  );
}

export function Held({ held }: { held: string | undefined }) {
  if (!held) return null;
  return (
    <p class="banner warn">
      <Icon name="lock" />
      <span>
        <b>It does not end by itself.</b> {held}
      </span>
    </p>
  );
}

export function PreviewView({ preview, first = 20 }: { preview: Preview; first?: number }) {
  const [all, setAll] = useState(false);
  const waves = preview.waves ?? [];
  const headline = preview.headline || (preview.unchanged ? 'The pods stay as they are.' : '');
  const leftOver = groupLeft(preview.left ?? []);
  const largest = Math.max(1, ...waves.map((w) => w.steps?.length ?? 0));
  const shown = all ? waves : waves.slice(0, first);
  return (
    <div class="preview">
      {headline && <p class="headline">{headline}</p>}
      <Held held={preview.held} />
      {Object.entries(preview.warnings ?? {}).map(([reason, text]) => (
        <p class="banner warn" key={reason}>
          <Icon name="bang" />
          <span>
            <b>{reason}:</b> {text}
          </span>
        </p>
      ))}
      {waves.length > 0 && (
        <ol class="lanes">
          {shown.map((w, i) => (
            <Lane key={i} wave={w} number={i + 1} largest={largest} />
          ))}
        </ol>
      )}
      {waves.length > shown.length && (
        <button type="button" onClick={() => setAll(true)}>
          Show all {waves.length} waves
        </button>
      )}
      {leftOver.length > 0 && (
        <div class="left">
          <h3>Pods that are left</h3>
          <ul class="actions">
            {leftOver.map((g) => (
              <li key={g.text} class="action">
                <div>
                  <b>{plural(g.pods.length, 'pod')}:</b> {g.text}
                </div>
                <Names of={g.pods} />
              </li>
            ))}
          </ul>
        </div>
      )}
      {(preview.notes ?? []).map((n) => (
        <p class="dim" key={n}>
          {n}
        </p>
      ))}
    </div>
  );
}

export function WavesCard({ preview }: { preview: Preview | undefined }) {
  const none = preview && !preview.waves?.length && !preview.held && !preview.left?.length;
  return (
    <section class="card" aria-labelledby="waves-h">
      <div class="cardhead">
        <h2 id="waves-h">Waves to come</h2>
        {!!preview?.takesSeconds && <span class="dim">{length(preview.takesSeconds)} at least</span>}
      </div>
      {!preview && <p class="dim">The planner has not answered yet.</p>}
      {none && <p class="dim">No wave is to come.</p>}
      {preview && !none && <PreviewView preview={preview} first={5} />}
    </section>
  );
}
