import { useMemo } from 'preact/hooks';
import { structuredPatch } from 'diff';

export interface DiffLine {
  sign: '+' | '-' | ' ' | '@';
  text: string;
}

/** The hunks of a unified diff as lines, or undefined if the texts are too different to compare in time. */
export function diffLines(before: string, after: string): DiffLine[] | undefined {
  const patch = structuredPatch('', '', before, after, '', '', { context: 3, timeout: 1500 });
  if (!patch) return undefined;
  const lines: DiffLine[] = [];
  for (const h of patch.hunks) {
    lines.push({ sign: '@', text: `@@ -${h.oldStart},${h.oldLines} +${h.newStart},${h.newLines} @@` });
    for (const line of h.lines) {
      const sign = line[0];
      if (sign === '+' || sign === '-' || sign === ' ') lines.push({ sign, text: line.slice(1) });
    }
  }
  return lines;
}

const SAID: Record<string, string> = { '+': 'added: ', '-': 'removed: ' };

export function Diff({ before, after, same }: { before: string; after: string; same: string }) {
  const lines = useMemo(() => diffLines(before, after), [before, after]);
  if (!lines) return <p class="dim">The two texts are too different to compare.</p>;
  if (!lines.length) return <p class="dim">{same}</p>;
  return (
    <div class="diff mono" tabIndex={0} role="region" aria-label="Difference">
      {lines.map((l, i) => (
        <div key={i} data-sign={l.sign}>
          <span aria-hidden="true">{l.sign === '@' ? '' : l.sign}</span>
          {SAID[l.sign] && <span class="sr">{SAID[l.sign]}</span>}
          <span>{l.text || ' '}</span>
        </div>
      ))}
    </div>
  );
}
