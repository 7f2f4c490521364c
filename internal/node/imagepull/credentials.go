package imagepull

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/internal/node/runtime"
)

// credential is one entry of a docker configuration.
type credential struct {
	// registry is host[:port][/path], in the form that location returns. Labels of the host may be globs.
	registry string
	auth     runtime.Auth
}

// dockerEntry is the serialized form of an entry.
type dockerEntry struct {
	Username      string `json:"username"`
	Password      string `json:"password"`
	Auth          string `json:"auth"`
	IdentityToken string `json:"identitytoken"`
	RegistryToken string `json:"registrytoken"`
}

// entries is called for each entry of a docker configuration in turn: all of them may take many times the size of
// their text.
type entries func(registry string, entry dockerEntry)

// UnmarshalJSON implements json.Unmarshaler.
func (e entries) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	if begin, err := d.Token(); err != nil || begin == nil {
		return err //nolint:wrapcheck // nobody reads it
	} else if begin != json.Delim('{') {
		return errors.New("the entries are no object")
	}
	for d.More() {
		registry, err := d.Token()
		if err != nil {
			return err //nolint:wrapcheck // as above
		}
		var entry dockerEntry
		if err := d.Decode(&entry); err != nil {
			return err //nolint:wrapcheck // as above
		}
		e(fmt.Sprint(registry), entry)
	}
	return nil
}

// fromSecret returns the credentials for an image in a pull secret. If any entry of the secret cannot be used, it
// returns an error, which does not contain the content of the secret.
func fromSecret(secret *corev1.Secret, image string) ([]runtime.Auth, error) {
	var list []credential
	var wrong error
	named, _ := reference.ParseNormalizedNamed(image) // nil if it is no name of an image
	each := entries(func(registry string, entry dockerEntry) {
		auth, err := entry.auth()
		if err != nil && wrong == nil {
			wrong = fmt.Errorf("entry %s of the secret: %w", registry, err)
		}
		at := location(registry)
		if named != nil && covers(at, reference.Domain(named), reference.Path(named)) {
			list = append(list, credential{at, auth})
		}
	})
	switch secret.Type {
	case corev1.SecretTypeDockerConfigJson:
		config := struct {
			Auths entries `json:"auths"`
		}{each}
		if json.Unmarshal(secret.Data[corev1.DockerConfigJsonKey], &config) != nil {
			return nil, fmt.Errorf("%s of the secret is no docker configuration", corev1.DockerConfigJsonKey)
		}
	case corev1.SecretTypeDockercfg:
		if json.Unmarshal(secret.Data[corev1.DockerConfigKey], &each) != nil {
			return nil, fmt.Errorf("%s of the secret is no docker configuration", corev1.DockerConfigKey)
		}
	default:
		return nil, fmt.Errorf("secrets of type %s hold no registry credentials", secret.Type)
	}
	if wrong != nil {
		return nil, wrong
	}

	order(list)
	return matching(list, image), nil
}

// location converts a key of a docker configuration, or a pattern of a credential provider, to the form
// host[:port][/path], as kubelet does. For example, https://registry.example.com/v2/team becomes
// registry.example.com/team. location returns an empty string if the key cannot be parsed.
func location(registry string) string {
	if !strings.Contains(registry, "://") {
		registry = "https://" + registry
	}
	u, err := url.Parse(registry)
	if err != nil {
		return ""
	}

	host := u.Host
	if host == "index.docker.io" || host == "registry-1.docker.io" {
		host = "docker.io"
	}

	within := strings.Trim(u.Path, "/")
	for _, api := range []string{"v1", "v2"} { // the API version that docker login adds
		if rest, ok := strings.CutPrefix(within, api); ok && (rest == "" || rest[0] == '/') {
			within = strings.TrimPrefix(rest, "/")
			break
		}
	}

	return strings.TrimSuffix(host+"/"+within, "/")
}

// order sorts more specific registries first, so that a longer path comes before its prefix.
func order(list []credential) {
	slices.SortFunc(list, func(a, b credential) int { return strings.Compare(b.registry, a.registry) })
}

func (e dockerEntry) auth() (runtime.Auth, error) {
	auth := runtime.Auth{
		Username:      e.Username,
		Password:      e.Password,
		IdentityToken: e.IdentityToken,
		RegistryToken: e.RegistryToken,
	}
	if e.Auth == "" || auth.Username != "" || auth.Password != "" {
		return auth, nil
	}

	decoded, err := base64.StdEncoding.DecodeString(e.Auth)
	if err != nil {
		decoded, err = base64.RawStdEncoding.DecodeString(e.Auth)
	}
	user, password, ok := strings.Cut(strings.TrimRight(string(decoded), "\x00"), ":")
	if err != nil || !ok {
		return auth, fmt.Errorf("auth is not the base64 text of user:password")
	}

	auth.Username, auth.Password = user, password
	return auth, nil
}

// matching returns the credentials for an image in order and without duplicates.
func matching(list []credential, image string) []runtime.Auth {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return nil
	}
	var found []runtime.Auth
	has := map[runtime.Auth]bool{{}: true}
	for _, c := range list {
		if !has[c.auth] && covers(c.registry, reference.Domain(named), reference.Path(named)) {
			has[c.auth] = true
			found = append(found, c.auth)
		}
	}
	return found
}

// covers reports whether an entry at a location applies to a repository: the labels of the hosts must be
// equal or match globs of the entry, the ports must be equal, and the path of the entry must be a prefix.
func covers(at, host, repository string) bool {
	wantHost, wantPath, _ := strings.Cut(at, "/")
	if wantPath != "" && repository != wantPath && !strings.HasPrefix(repository, wantPath+"/") {
		return false
	}

	wantName, wantPort := split(wantHost)
	name, port := split(host)
	wantLabels, labels := strings.Split(wantName, "."), strings.Split(name, ".")
	if wantPort != port || len(wantLabels) != len(labels) {
		return false
	}

	for i := range labels {
		if ok, err := path.Match(wantLabels[i], labels[i]); !ok || err != nil {
			return false
		}
	}

	return true
}

func split(host string) (name, port string) {
	if name, port, err := net.SplitHostPort(host); err == nil {
		return name, port
	}
	return host, ""
}
