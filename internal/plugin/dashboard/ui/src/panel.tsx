import type { PodPlan, Tile } from './types';
import { TILE_HELP, TILE_WORDS, ago, left, reasonText, when } from './format';
import { Icon, TILE_ICONS } from './icons';
import { useNow } from './hooks';
import type { ComponentChildren } from 'preact';

function Line({ name, children }: { name: string; children: ComponentChildren }) {
  if (children === undefined || children === null || children === '') return null;
  return (
    <>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </>
  );
}

const PLAN_WORDS: Record<string, string> = { done: 'Nothing is left to do', next: 'It is the next to be done', waiting: 'It waits' };

interface Props {
  id: string;
  tile: Tile | undefined;
  plan: PodPlan | undefined;
  onClose: () => void;
}

export function PodPanel({ id, tile, plan, onClose }: Props) {
  const now = useNow();
  const name = tile?.name ?? id.slice(id.indexOf('/') + 1);
  const until = plan?.until ?? tile?.until;
  const why = (plan && reasonText(plan.reason, plan.message)) || reasonText(tile?.reason, tile?.message);
  const restarts = plan?.restarts ?? [];
  return (
    <aside class="panel card" aria-label={`Pod ${name}`}>
      <div class="cardhead">
        <h2 class="mono">{name}</h2>
        <button type="button" class="quiet" aria-label="Close the details of the pod" onClick={onClose}>
          <Icon name="cross" />
        </button>
      </div>
      {!tile ? (
        <p>This pod is gone.</p>
      ) : (
        <>
          <p class="pstate">
            <span class="swatch" data-state={tile.state}>
              <Icon name={TILE_ICONS[tile.state] ?? 'ask'} />
            </span>
            <b>{TILE_WORDS[tile.state] ?? tile.state}.</b> <span class="dim">{TILE_HELP[tile.state]}</span>
          </p>
          <dl>
            <Line name="Plan">{plan && `${PLAN_WORDS[plan.state] ?? plan.state}${plan.action ? `: ${plan.action}` : ''}.`}</Line>
            <Line name="Reason">{why}</Line>
            <Line name="Goes on">{until && `${left(until, now)} (${when(until)})`}</Line>
            <Line name="Will restart">{restarts.length ? restarts.join(', ') : plan && plan.state !== 'done' ? 'no container' : ''}</Line>
            <Line name="Revision">{tile.revision && `${tile.revision}${tile.new ? ' (new)' : ' (old)'}`}</Line>
            <Line name="Ready">{tile.ready && `${tile.ready} containers`}</Line>
            <Line name="Phase">{tile.phase}</Line>
            <Line name="Lifecycle">{tile.lifecycle}</Line>
            <Line name="Restarts">{tile.restarts}</Line>
            <Line name="Node">{tile.node}</Line>
            <Line name="Subset">{tile.subset}</Line>
            <Line name="Namespace">{tile.namespace}</Line>
            <Line name="Images">
              {tile.images?.length ? tile.images.map((image) => <div class="mono" key={image}>{image}</div>) : ''}
            </Line>
            <Line name="Created">{tile.since && ago(tile.since, now)}</Line>
          </dl>
        </>
      )}
    </aside>
  );
}
