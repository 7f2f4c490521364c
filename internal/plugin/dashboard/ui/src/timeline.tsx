import { useState } from 'preact/hooks';
import type { KubeEvent } from './types';
import { ago, when } from './format';
import { Icon } from './icons';
import { useNow } from './hooks';

export function TimelineCard({ events }: { events: KubeEvent[] }) {
  const now = useNow();
  const [only, setOnly] = useState(false);
  const warnings = events.filter((e) => e.type === 'Warning').length;
  const shown = only ? events.filter((e) => e.type === 'Warning') : events;
  return (
    <section class="card" aria-labelledby="events-h">
      <div class="cardhead">
        <h2 id="events-h">Timeline</h2>
        <label class="check">
          <input type="checkbox" checked={only} onChange={(e) => setOnly(e.currentTarget.checked)} /> Warnings only ({warnings})
        </label>
      </div>
      {!shown.length && <p class="dim">{only ? 'There are no warnings.' : 'There are no events.'}</p>}
      <ol class="events" tabIndex={0} aria-label="Events, newest first">
        {shown.map((e, i) => (
          <li key={`${e.time}${e.reason}${e.about}${i}`} data-type={e.type}>
            <time dateTime={e.time} title={when(e.time)}>
              {ago(e.time, now)}
            </time>
            <span class="emark">{e.type === 'Warning' && <Icon name="bang" />}</span>
            <span class="etext">
              <b>
                {e.type === 'Warning' && <span class="sr">Warning: </span>}
                {e.reason}
              </b>{' '}
              {e.message} <span class="dim">{e.about}</span>
              {(e.count ?? 1) > 1 && <span class="dim"> · {e.count} times</span>}
            </span>
          </li>
        ))}
      </ol>
    </section>
  );
}
