import { useEffect, useRef, useState } from 'preact/hooks';
import type { Change, Detail, Target } from './types';
import { PlanAndApply } from './plan';
import { Icon } from './icons';

export type ActionName = 'pause' | 'resume' | 'restart' | 'undo' | 'scale';

export const ACTION_WORDS: Record<ActionName, string> = {
  pause: 'Pause',
  resume: 'Resume',
  restart: 'Restart',
  undo: 'Undo',
  scale: 'Scale',
};

const TITLES: Record<ActionName, string> = {
  pause: 'Pause the rollout of',
  resume: 'Resume the rollout of',
  restart: 'Restart the pods of',
  undo: 'Go back with',
  scale: 'Scale',
};

const HELP: Record<ActionName, string> = {
  pause: 'No further pod is updated until the rollout is resumed. Pods that are being updated now are finished.',
  resume: 'The rollout goes on where it stopped.',
  restart: 'Every pod is restarted, under the same rules as a rollout.',
  undo: 'The pods get the template of an earlier revision.',
  scale: 'The number of pods is changed.',
};

interface Props {
  action: ActionName;
  of: Target;
  detail: Detail;
  toRevision?: number;
  onClose: () => void;
  onApplied: (generation: number) => void;
}

export function ActionDialog({ action, of, detail, toRevision = 0, onClose, onApplied }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [inPlace, setInPlace] = useState(true);
  const [replicas, setReplicas] = useState(String(detail.replicas ?? detail.desired ?? ''));
  useEffect(() => {
    const el = dialog.current!;
    el.showModal();
    // Closed before it goes, the dialog gives the focus back to where it was.
    return () => el.close();
  }, []);

  let change: Change | undefined;
  const count = /^\d+$/.test(replicas.trim()) ? Number(replicas) : NaN;
  if (action === 'restart') change = { action, inPlace };
  else if (action === 'undo') change = { action, toRevision };
  else if (action !== 'scale') change = { action };
  else if (!Number.isNaN(count)) change = { action, replicas: count };

  const title = `${TITLES[action]} ${detail.name}`;
  return (
    <dialog
      ref={dialog}
      class="dialog"
      aria-labelledby="dialog-h"
      onCancel={(e) => {
        e.preventDefault();
        onClose();
      }}
      onKeyDown={(e) => e.stopPropagation()}
    >
      <div class="cardhead">
        <h2 id="dialog-h">{title}</h2>
        <button type="button" class="quiet" aria-label="Close" onClick={onClose}>
          <Icon name="cross" />
        </button>
      </div>
      <p class="dim">{action === 'undo' && toRevision ? `The pods get the template of revision ${toRevision}.` : HELP[action]}</p>
      {action === 'restart' && (
        <fieldset class="choice">
          <legend>How</legend>
          <label>
            <input type="radio" name="how" checked={inPlace} onChange={() => setInPlace(true)} /> In place: the containers are
            restarted, and the pods stay.
          </label>
          <label>
            <input type="radio" name="how" checked={!inPlace} onChange={() => setInPlace(false)} /> New pods: each pod is replaced
            by a new one.
          </label>
        </fieldset>
      )}
      {action === 'scale' && (
        <label class="field">
          <span>Number of pods (now {detail.replicas ?? detail.desired ?? 'unknown'})</span>
          <input
            type="number"
            min={0}
            step={1}
            value={replicas}
            onInput={(e) => setReplicas(e.currentTarget.value)}
          />
        </label>
      )}
      <PlanAndApply
        of={of}
        change={change}
        auto={action !== 'scale'}
        onApplied={(g) => {
          onApplied(g);
          onClose();
        }}
        onCancel={onClose}
      />
    </dialog>
  );
}
