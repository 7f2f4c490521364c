import { useState } from 'preact/hooks';
import type { Detail, Target } from './types';
import { ACTION_WORDS, ActionDialog } from './confirm';
import type { ActionName } from './confirm';
import { Icon } from './icons';
import type { IconName } from './icons';

const ICONS: Record<ActionName, IconName> = { pause: 'pause', resume: 'play', restart: 'turn', undo: 'back', scale: 'scale' };
const DOING: Record<ActionName, string> = {
  pause: 'be paused',
  resume: 'be resumed',
  restart: 'be restarted',
  undo: 'go back to an earlier revision',
  scale: 'be scaled',
};

/** Why an action is not offered; empty if it is. */
export function whyNot(detail: Detail, action: ActionName): string {
  const may = detail.may ?? {};
  const allowed = action === 'resume' ? may.pause : may[action];
  if (allowed) return '';
  return detail.mayNot || `A ${detail.kind} cannot ${DOING[action]}.`;
}

interface Props {
  of: Target;
  detail: Detail;
  onApplied: (text: string) => void;
}

export function Actions({ of, detail, onApplied }: Props) {
  const [open, setOpen] = useState<ActionName>();
  const [said, setSaid] = useState('');
  const list: ActionName[] = [detail.paused ? 'resume' : 'pause', 'undo', 'restart', 'scale'];
  return (
    <div class="actionbar" role="group" aria-label="Actions">
      {list.map((action) => {
        const why = whyNot(detail, action);
        return (
          <button
            type="button"
            key={action}
            aria-disabled={!!why}
            title={why || undefined}
            aria-description={why || undefined}
            onClick={() => {
              setSaid(why);
              if (!why) setOpen(action);
            }}
          >
            <Icon name={ICONS[action]} />
            {ACTION_WORDS[action]}
          </button>
        );
      })}
      {(said || detail.mayNot) && (
        <span class="dim" role="status">
          {said || detail.mayNot}
        </span>
      )}
      {open && (
        <ActionDialog
          action={open}
          of={of}
          detail={detail}
          onClose={() => setOpen(undefined)}
          onApplied={(generation) => onApplied(`${ACTION_WORDS[open]} was applied. The generation is now ${generation}.`)}
        />
      )}
    </div>
  );
}
