import { render } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { ApiError, getSession, takeToken, token, whenRefused } from './api';
import { followLink, targetOf, useRoute } from './route';
import { applyTheme } from './theme';
import { OverviewPage } from './overview';
import { WorkloadPage } from './workload';
import { Shell } from './shell';
import { pause } from './stream';
import type { Session } from './types';

function App() {
  const { path, query } = useRoute();
  const [refused, setRefused] = useState(!token());
  const [session, setSession] = useState<Session>();
  const [failure, setFailure] = useState('');

  useEffect(() => whenRefused(() => setRefused(true)), []);
  useEffect(() => {
    if (refused) return;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let tries = 0;
    const load = () =>
      getSession().then(
        (s) => {
          setSession(s);
          setFailure('');
        },
        (err: Error) => {
          if (err instanceof ApiError && err.status === 401) return;
          setFailure(err.message);
          timer = setTimeout(load, pause(tries++));
        },
      );
    void load();
    return () => clearTimeout(timer);
  }, [refused]);

  // Another page begins at its heading, for those who do not see that it changed.
  const [first, setFirst] = useState(path);
  useEffect(() => {
    if (first === path) return;
    setFirst(path);
    window.scrollTo(0, 0);
    document.getElementById('main')?.focus({ preventScroll: true });
  }, [path]);

  if (refused) {
    return (
      <Shell session={undefined}>
        <div class="alone">
          <h1>Open the page by the address that the command printed</h1>
          <p>
            This page needs the token that is part of the address which <code>kubectl afloat dashboard</code> prints. The token
            is missing or is not the one of the command that runs now.
          </p>
        </div>
      </Shell>
    );
  }
  const target = targetOf(path);
  if (target) {
    return <WorkloadPage key={path} of={target} session={session} query={query} failure={failure} />;
  }
  return <OverviewPage session={session} query={query} failure={failure} />;
}

takeToken();
applyTheme();
document.addEventListener('click', followLink);
// The address may be given again in the same tab when the command was started anew.
window.addEventListener('hashchange', () => {
  if (!location.hash.startsWith('#token=')) return;
  takeToken();
  location.reload();
});
const root = document.getElementById('app')!;
root.textContent = '';
render(<App />, root);
