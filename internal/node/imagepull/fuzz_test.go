package imagepull

import (
	"encoding/base64"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FuzzPullSecret: the order of credentials is the same each time, and neither a docker configuration that
// cannot be read nor one that can puts a password into an error.
func FuzzPullSecret(f *testing.F) {
	auth := base64.StdEncoding.EncodeToString([]byte("user:hunter2"))
	for _, text := range []string{`{"auths":{"https://registry.example.com/v2/team":{"auth":"` + auth + `"},"*.example.com":{"username":"a","password":"b"}}}`,
		`{"registry.example.com":{"username":"a","password":"hunter2"}}`, `{"auths":{"a":{"auth":"hunter2"}}}`, `{"auths":null}`, `[]`, `hunter2`,
		`{"auths":{"%zz":{},"[::1":{},"//":{}}}`} {
		f.Add([]byte(text), "registry.example.com/team/app:1")
	}
	f.Fuzz(func(t *testing.T, text []byte, image string) {
		for _, kind := range []corev1.SecretType{corev1.SecretTypeDockerConfigJson, corev1.SecretTypeDockercfg,
			corev1.SecretTypeOpaque} {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Type: kind,
				Data: map[string][]byte{corev1.DockerConfigJsonKey: text, corev1.DockerConfigKey: text}}
			found, err := fromSecret(secret, image)
			again, err2 := fromSecret(secret, image)
			if (err == nil) != (err2 == nil) {
				t.Errorf("%q is read with %v, and then with %v", text, err, err2)
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") && !strings.Contains(string(text), `"hunter2":`) {
				t.Errorf("%q: the error is %q", text, err)
			}
			if len(found) != len(again) {
				t.Errorf("%q has %d credentials for %q, and then %d", text, len(found), image, len(again))
			}
		}
	})
}

// FuzzLocation: a key of a docker configuration has no scheme and no slash at its end, and covers itself.
func FuzzLocation(f *testing.F) {
	for _, key := range []string{"https://index.docker.io/v1/", "registry.example.com:5000/v2/team",
		"*.example.com", "http://a/v1beta/x/", "%", "://", "//"} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		got := location(key)
		if len(got) > 3*len(key)+len("docker.io") || strings.HasSuffix(got, "/") && strings.Trim(got, "/") != "" {
			t.Errorf("%q is at %q", key, got)
		}
	})
}
