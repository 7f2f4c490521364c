package imagepull

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/distribution/reference"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1"
	credentialprovider "k8s.io/kubelet/pkg/apis/credentialprovider/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"github.com/afloat-project/afloat/internal/node/runtime"
)

const (
	// pluginTimeout bounds one call of a plugin.
	pluginTimeout = time.Minute
	// pluginCalls bounds how many programs run at once, no matter how many pulls begin.
	pluginCalls = 4
)

// Plugins are kubelet's credential provider plugins: programs that print credentials for an image (IMG-137).
type Plugins struct {
	providers []kubeletconfig.CredentialProvider
	folder    string
	clock     clock.PassiveClock
	calls     chan struct{} // has a value for each running program

	mu    sync.Mutex
	cache map[pluginKey]pluginAnswer
}

type pluginKey struct{ provider, scope string }

type pluginAnswer struct {
	credentials []credential
	until       time.Time
}

// LoadPlugins reads kubelet's configuration of credential providers; nil if there is no such file (ND-022).
func LoadPlugins(configFile, folder string, c clock.PassiveClock) (*Plugins, error) {
	data, err := os.ReadFile(configFile)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the configuration of credential providers: %w", err)
	}

	var config kubeletconfig.CredentialProviderConfig
	if err := yaml.Unmarshal(data, &config); err != nil {
		return nil, fmt.Errorf("configuration of credential providers %s: %w", configFile, err)
	}
	if config.Kind != "CredentialProviderConfig" || len(config.Providers) == 0 {
		return nil,
			fmt.Errorf("configuration of credential providers %s: no CredentialProviderConfig with providers",
				configFile)
	}

	for _, p := range config.Providers {
		if p.Name == "" || p.Name != filepath.Base(p.Name) || p.Name == "." || p.Name == ".." {
			return nil,
				fmt.Errorf("configuration of credential providers %s: %q is not the name of a program",
					configFile, p.Name)
		}
		if p.TokenAttributes != nil {
			return nil,
				fmt.Errorf(
					"configuration of credential providers %s: provider %s wants tokens of pods, and pulls here belong to none",
					configFile, p.Name)
		}
	}

	return &Plugins{
		providers: config.Providers,
		folder:    folder,
		clock:     c,
		calls:     make(chan struct{}, pluginCalls),
		cache:     map[pluginKey]pluginAnswer{},
	}, nil
}

// Credentials implements Provider.
func (p *Plugins) Credentials(ctx context.Context, image string) ([]runtime.Auth, error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", image, err)
	}

	var found []runtime.Auth
	var failures []error
	for i := range p.providers {
		provider := &p.providers[i]
		if !slices.ContainsFunc(provider.MatchImages,
			func(pattern string) bool {
				return covers(location(pattern), reference.Domain(named), reference.Path(named))
			}) {
			continue
		}
		list, err := p.ask(ctx, provider, named)
		if err != nil {
			failures = append(failures, fmt.Errorf("credential provider %s: %w", provider.Name, err))
			continue
		}
		found = append(found, matching(list, image)...)
	}

	return found, errors.Join(failures...)
}

// Forget implements Provider. It drops the cached answers, which may be outdated.
func (p *Plugins) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.cache)
}

// scopes are the keys under which an answer may be cached, by type.
func scopes(named reference.Named) map[credentialprovider.PluginCacheKeyType]string {
	return map[credentialprovider.PluginCacheKeyType]string{
		credentialprovider.ImagePluginCacheKeyType:    named.String(),
		credentialprovider.RegistryPluginCacheKeyType: reference.Domain(named),
		credentialprovider.GlobalPluginCacheKeyType:   "",
	}
}

func (p *Plugins) ask(
	ctx context.Context, provider *kubeletconfig.CredentialProvider, named reference.Named,
) ([]credential, error) {
	if list, ok := p.cached(provider.Name, named); ok {
		return list, nil
	}

	select {
	case p.calls <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for its turn: %w", context.Cause(ctx))
	}

	defer func() { <-p.calls }()

	if list, ok := p.cached(provider.Name, named); ok { // another pull has filled the cache meanwhile
		return list, nil
	}

	answer, err := p.call(ctx, provider, named.String())
	if err != nil {
		return nil, err
	}

	var list []credential
	for registry, auth := range answer.Auth {
		list = append(list, credential{location(registry),
			runtime.Auth{Username: auth.Username, Password: auth.Password}})
	}

	order(list)
	keep := time.Duration(0)
	if answer.CacheDuration != nil {
		keep = answer.CacheDuration.Duration
	} else if provider.DefaultCacheDuration != nil {
		keep = provider.DefaultCacheDuration.Duration
	}
	if scope, ok := scopes(named)[answer.CacheKeyType]; ok && keep > 0 {
		p.keep(pluginKey{provider.Name, scope}, pluginAnswer{list, p.clock.Now().Add(keep)})
	}

	return list, nil
}

func (p *Plugins) cached(provider string, named reference.Named) ([]credential, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, scope := range scopes(named) {
		if cached, ok := p.cache[pluginKey{provider, scope}]; ok && p.clock.Now().Before(cached.until) {
			return cached.credentials, true
		}
	}
	return nil, false
}

// keep caches an answer, and drops outdated ones: there may be one for every image.
func (p *Plugins) keep(k pluginKey, answer pluginAnswer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now()
	maps.DeleteFunc(p.cache, func(_ pluginKey, old pluginAnswer) bool { return !now.Before(old.until) })
	p.cache[k] = answer
}

// call runs the program. Errors contain its standard error, but not its standard output, which holds
// credentials (ND-073).
func (p *Plugins) call(
	ctx context.Context, provider *kubeletconfig.CredentialProvider, image string,
) (*credentialprovider.CredentialProviderResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, pluginTimeout)
	defer cancel()

	request, err := json.Marshal(credentialprovider.CredentialProviderRequest{
		TypeMeta: metav1.TypeMeta{APIVersion: provider.APIVersion, Kind: "CredentialProviderRequest"},
		Image:    image,
	})
	if err != nil {
		return nil, fmt.Errorf("encoding the request: %w", err)
	}

	var stdout, stderr bytes.Buffer
	command := exec.CommandContext(ctx, filepath.Join(p.folder, provider.Name), provider.Args...)
	command.Stdin, command.Stdout, command.Stderr = bytes.NewReader(request), &stdout, &stderr
	command.Env = os.Environ()
	command.WaitDelay = time.Second // child processes may keep the pipes open for ever
	for _, e := range provider.Env {
		command.Env = append(command.Env, e.Name+"="+e.Value)
	}

	if err := command.Run(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
	}

	answer := &credentialprovider.CredentialProviderResponse{}
	if json.Unmarshal(stdout.Bytes(), answer) != nil || answer.Kind != "CredentialProviderResponse" ||
		answer.APIVersion != provider.APIVersion {
		return nil, fmt.Errorf("it did not print a CredentialProviderResponse of %s", provider.APIVersion)
	}

	return answer, nil
}
