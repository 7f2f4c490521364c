import { useEffect, useState } from 'preact/hooks';
import { getDocument } from './api';
import type { Change, Detail, Target } from './types';
import { PlanAndApply } from './plan';

interface Props {
  of: Target;
  detail: Detail;
  onApplied: (text: string) => void;
}

export function WhatIf({ of, detail, onApplied }: Props) {
  const containers = detail.containers ?? [];
  const [mode, setMode] = useState<'images' | 'yaml'>(containers.length ? 'images' : 'yaml');
  const [images, setImages] = useState<Record<string, string>>({});
  const [loaded, setLoaded] = useState<string>();
  const [yaml, setYaml] = useState('');
  const [generation, setGeneration] = useState<number>();
  const [error, setError] = useState('');

  const load = () => {
    setError('');
    getDocument(of).then(
      (d) => {
        setLoaded(d.yaml);
        setYaml(d.yaml);
        setGeneration(d.generation);
      },
      (err: Error) => setError(err.message),
    );
  };
  useEffect(() => {
    if (mode === 'yaml' && loaded === undefined) load();
  }, [mode]);

  const changed: Record<string, string> = {};
  for (const c of containers) {
    const image = images[c.name]?.trim();
    if (image && image !== c.image) changed[c.name] = image;
  }
  let change: Change | undefined;
  if (mode === 'images' && Object.keys(changed).length) change = { action: 'images', images: changed };
  if (mode === 'yaml' && loaded !== undefined && yaml !== loaded) change = { action: 'yaml', yaml };
  const mayNot = detail.may?.change ? '' : detail.mayNot || `A ${detail.kind} cannot be changed here.`;

  return (
    <section class="card whatif" aria-labelledby="whatif-h">
      <div class="cardhead">
        <h2 id="whatif-h">What if?</h2>
        <div class="seg" role="group" aria-label="What is edited">
          <button type="button" aria-pressed={mode === 'images'} onClick={() => setMode('images')} disabled={!containers.length}>
            Images
          </button>
          <button type="button" aria-pressed={mode === 'yaml'} onClick={() => setMode('yaml')}>
            YAML
          </button>
        </div>
      </div>
      <p class="dim">The plan shows what each pod would go through. Nothing is changed before you apply it.</p>
      {mode === 'images' ? (
        <div class="images">
          {containers.map((c) => (
            <label class="field" key={c.name}>
              <span>Image of container {c.name}</span>
              <input
                class="mono"
                value={images[c.name] ?? c.image}
                spellcheck={false}
                autocomplete="off"
                onInput={(e) => setImages({ ...images, [c.name]: e.currentTarget.value })}
              />
            </label>
          ))}
        </div>
      ) : error ? (
        <p class="banner bad" role="alert">
          {error} <button type="button" onClick={load}>Load it again</button>
        </p>
      ) : loaded === undefined ? (
        <p class="dim">The YAML is loading.</p>
      ) : (
        <label class="field">
          <span>YAML of the workload</span>
          <textarea class="mono" rows={22} spellcheck={false} value={yaml} onInput={(e) => setYaml(e.currentTarget.value)} />
        </label>
      )}
      {!change && (mode === 'images' || loaded !== undefined) && (
        <p class="dim">{mode === 'images' ? 'Change an image to plan it.' : 'Change the YAML to plan it.'}</p>
      )}
      {mode === 'yaml' && loaded !== undefined && (
        <p>
          <button type="button" onClick={load}>
            Load the present YAML again
          </button>
        </p>
      )}
      <PlanAndApply
        of={of}
        change={change}
        {...(mode === 'yaml' && generation !== undefined && { from: generation })}
        mayNot={mayNot}
        onApplied={(generation) => {
          setImages({});
          setLoaded(undefined);
          setMode(containers.length ? 'images' : 'yaml');
          onApplied(`The change was applied. The generation is now ${generation}.`);
        }}
      />
    </section>
  );
}
