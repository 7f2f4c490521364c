import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { ENDED } from './stream';
import type { Connection } from './stream';
import type { Session } from './types';
import { ThemeButton } from './theme';
import { useNow } from './hooks';
import { length } from './format';

/** Whether the stream runs, in words. */
function ConnectionState({ connection }: { connection: Connection }) {
  const lost = connection.state === 'lost';
  const now = useNow(lost);
  let text = connection.state as string;
  if (lost) {
    const seconds = Math.ceil((connection.until - now) / 1000);
    text = seconds > 0 ? `lost: trying again in ${length(seconds)}` : 'lost: trying again now';
  }
  return (
    <span class="connection" data-state={connection.state} title={lost ? connection.why : undefined}>
      <span class="dot" aria-hidden="true" />
      <span class="sr">Connection: </span>
      {text}
    </span>
  );
}

export function Notes({ notes }: { notes: string[] }) {
  if (!notes.length) return null;
  return (
    <ul class="notes" aria-label="Notes">
      {notes.map((text) => (
        <li key={text}>{text}</li>
      ))}
    </ul>
  );
}

const QUIET = 5000;

/** Says a text politely to screen readers, not more often than every five seconds. */
export function Announcer({ text }: { text: string }) {
  const [said, setSaid] = useState('');
  const last = useRef(0);
  useEffect(() => {
    if (!text || text === said) return;
    const timer = setTimeout(
      () => {
        last.current = Date.now();
        setSaid(text);
      },
      Math.max(0, last.current + QUIET - Date.now()),
    );
    return () => clearTimeout(timer);
  }, [text, said]);
  return (
    <div class="sr" role="status" aria-live="polite">
      {said}
    </div>
  );
}

interface Props {
  session: Session | undefined;
  connection?: Connection;
  /** What is said aloud when it changes. */
  say?: string;
  wide?: boolean;
  children: ComponentChildren;
}

export function Shell({ session, connection, say = '', wide, children }: Props) {
  const failed = connection?.state === 'lost' && connection.why !== ENDED ? connection.why : '';
  return (
    <div class={wide ? 'shell fill' : 'shell'}>
      <a class="skip" href="#main">
        Skip to the content
      </a>
      <header class="top">
        <a class="brand" href="/">
          Afloat
        </a>
        {session && (
          <span class="where" title={`Server ${session.server}${session.user ? `, user ${session.user}` : ''}, Afloat ${session.version}`}>
            <b>{session.context}</b> {session.user && <span class="dim">as {session.user}</span>}
          </span>
        )}
        <span class="grow" />
        {connection && <ConnectionState connection={connection} />}
        <ThemeButton />
      </header>
      <main id="main" tabIndex={-1}>
        {failed && (
          <p class="banner bad" role="alert">
            {failed} What the page shows may be old.
          </p>
        )}
        {children}
      </main>
      <Announcer text={say} />
    </div>
  );
}
