// Bundles the page into ../assets, which is committed so that building the plugin needs no Node.js.
import { build } from 'esbuild';
import { copyFile, mkdir, readFile } from 'node:fs/promises';

const at = (path) => new URL(path, import.meta.url).pathname;

// The licenses of what is in the bundle ask that their text goes with it.
async function licenses(...names) {
  const texts = await Promise.all(
    names.map(async (name) => {
      const { version } = JSON.parse(await readFile(at(`node_modules/${name}/package.json`), 'utf8'));
      const text = await readFile(at(`node_modules/${name}/LICENSE`), 'utf8');
      return `${name} ${version}\n\n${text.trim()}`;
    }),
  );
  return `/*! Afloat's dashboard holds these libraries:\n\n${texts.join('\n\n---\n\n').replaceAll('*/', '* /')}\n*/`;
}

await mkdir(at('../assets'), { recursive: true });
const common = { bundle: true, minify: true, sourcemap: false, target: 'es2022', legalComments: 'inline', logLevel: 'info' };
await build({
  ...common,
  entryPoints: [at('src/app.tsx')],
  outfile: at('../assets/app.js'),
  format: 'iife',
  jsx: 'automatic',
  jsxImportSource: 'preact',
  banner: { js: await licenses('preact', 'diff') },
});
await build({ ...common, entryPoints: [at('src/style.css')], outfile: at('../assets/app.css') });
await copyFile(at('index.html'), at('../assets/index.html'));
