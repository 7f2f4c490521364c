import { build } from 'esbuild';

/** Imports a source of the page as a module, without writing it anywhere. */
export async function load(name) {
  const path = new URL(`../src/${name}`, import.meta.url).pathname;
  const { outputFiles } = await build({
    entryPoints: [path], bundle: true, write: false, format: 'esm', target: 'node20', jsx: 'automatic', jsxImportSource: 'preact', logLevel: 'error',
  });
  return import(`data:text/javascript;base64,${Buffer.from(outputFiles[0].text).toString('base64')}`);
}
