import { useState } from 'preact/hooks';
import { Icon } from './icons';

const KEY = 'afloat.theme';
type Theme = 'light' | 'dark';

function kept(): Theme | undefined {
  try {
    const value = localStorage.getItem(KEY);
    return value === 'light' || value === 'dark' ? value : undefined;
  } catch {
    return undefined;
  }
}

export function applyTheme(): void {
  const theme = kept();
  if (theme) document.documentElement.dataset.theme = theme;
}

const present = (): Theme => kept() ?? (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light');

export function ThemeButton() {
  const [theme, setTheme] = useState<Theme>(present);
  const other = theme === 'dark' ? 'light' : 'dark';
  const change = () => {
    document.documentElement.dataset.theme = other;
    try {
      localStorage.setItem(KEY, other);
    } catch {
      // Without storage the choice lasts until the page is closed.
    }
    setTheme(other);
  };
  return (
    <button type="button" class="quiet" onClick={change} aria-label={`Use ${other} colours`} title={`Use ${other} colours`}>
      <Icon name={other === 'dark' ? 'moon' : 'sun'} />
    </button>
  );
}
