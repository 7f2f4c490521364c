import type { Change, Plan, Revision, Session, Target } from './types';

const KEY = 'afloat.token';
let onRefused: () => void = () => {};

export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

/** Takes the token out of the address's fragment, so that it stays neither in the address bar nor in the history. */
export function takeToken(): void {
  const token = new URLSearchParams(location.hash.slice(1)).get('token');
  if (!token) return;
  try {
    localStorage.setItem(KEY, token);
  } catch {
    memory = token;
  }
  history.replaceState(null, '', location.pathname + location.search);
}

let memory = '';

export function token(): string {
  try {
    return localStorage.getItem(KEY) || memory;
  } catch {
    return memory;
  }
}

/** Sets what happens when the server does not know the token. */
export function whenRefused(f: () => void): void {
  onRefused = f;
}

/** Reads the sentence of an answer that is an error. */
async function errorOf(answer: Response): Promise<ApiError> {
  if (answer.status === 401) onRefused();
  let text = '';
  try {
    text = String(((await answer.json()) as { error?: unknown }).error ?? '');
  } catch {
    // The answer is not JSON: the status is all there is to say.
  }
  return new ApiError(answer.status, text || `The server answered with status ${answer.status}.`);
}

export async function request(path: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  headers.set('Authorization', `Bearer ${token()}`);
  let answer: Response;
  try {
    answer = await fetch(path, { ...init, headers, cache: 'no-store', credentials: 'omit' });
  } catch (err) {
    if ((err as Error).name === 'AbortError') throw err;
    throw new ApiError(0, 'The dashboard\'s server does not answer. Is "kubectl afloat dashboard" still running?');
  }
  if (!answer.ok) throw await errorOf(answer);
  return answer;
}

async function get<T>(path: string): Promise<T> {
  return (await (await request(path)).json()) as T;
}

async function post<T>(path: string, body: unknown, signal?: AbortSignal): Promise<T> {
  const init: RequestInit = { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) };
  if (signal) init.signal = signal;
  return (await (await request(path, init)).json()) as T;
}

export function query(values: object): string {
  const q = new URLSearchParams();
  for (const [key, value] of Object.entries(values)) if (value) q.set(key, String(value));
  const text = q.toString();
  return text ? `?${text}` : '';
}

const target = ({ resource, namespace, name }: Target) => ({ resource, namespace, name });

export const getSession = () => get<Session>('/api/session');
export const getRevisions = async (of: Target) =>
  (await get<{ revisions?: Revision[] | null }>(`/api/revisions${query(target(of))}`)).revisions ?? [];
export const getDocument = (of: Target) => get<{ yaml: string; generation: number }>(`/api/document${query(target(of))}`);
export const makePlan = (of: Target, change: Change, signal?: AbortSignal) =>
  post<Plan>('/api/plan', { ...target(of), change }, signal);
export const apply = (of: Target, change: Change, generation: number) =>
  post<{ generation: number }>('/api/apply', { ...target(of), change, generation });
export const overviewPath = (namespace: string) => `/api/overview${query({ namespace })}`;
export const workloadPath = (of: Target) => `/api/workload${query(target(of))}`;
