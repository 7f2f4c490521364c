package imagepull

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	pulljobs "github.com/afloat-project/afloat/internal/kinds/imagepull"
	"github.com/afloat-project/afloat/internal/node/runtime"
)

// credentials returns all credentials in secrets that a pull with a tag of these jobs, which the node has just got, tries if
// all are rejected.
func (s *secrets) credentials(ctx context.Context, names []types.NamespacedName, jobs []string, image string) (all []runtime.Auth, err error) {
	since := s.clock.Now()
	read := func(name types.NamespacedName) (cachedSecret, error) { return s.one(ctx, name, jobs, since) }
	for auth, err := range newRounds(names, jobs, image).all(ctx, read, func() []runtime.Auth { return nil }) {
		if err != nil {
			return nil, err
		}
		all = append(all, auth)
	}
	return all, nil
}

// IMG-122 (part), IMG-123 (part), IMG-137 (part): what a pull reads and tries, if everything is rejected. Each namespace tries one
// credential in a round, for which it reads one secret if it has none left; whoever has none left goes on with those of the node, and
// a pull for one namespace comes to them at last.
func TestNamespacesTakeTurnsInAPull(t *testing.T) {
	for name, test := range map[string]struct{ secrets, jobs, want string }{
		"of one namespace":                       {"shop:1 shop:2 shop:", "shop/a", "read 0, try 1, read 1, try 2, read 2, try node"},
		"one has many":                           {"mall:1 mall:2 mall:3 shop:4", "mall/a shop/a", "read 0, try 1, read 3, try 4, read 1, try 2, try node, read 2, try 3"},
		"the other has none":                     {"mall:1 mall:2 mall:3", "mall/a shop/a", "read 0, try 1, read 1, try 2, try node, read 2, try 3"},
		"both have the same, one behind another": {"mall:1,2,3 shop:2", "mall/a shop/a", "read 0, try 1, read 1, try 2, try 3, try node"},
		"one secret has all":                     {"mall:1,2,3 mall: shop:4,5", "mall/a shop/a", "read 0, try 1, read 2, try 4, try 2, try 5, try 3, try node, read 1"},
		"two jobs of a namespace":                {"shop:1 shop:2", "shop/a shop/b", "read 0, try 1, read 1, try 2, try node"},
		"names that tell no namespace":           {"old:1 shop:2", "shop/a mall/a", "read 1, try 2, read 0, try 1, try node"},
		"no secrets":                             {"", "shop/a", "try node"},
		"no job":                                 {"old:1 old:2", "", "read 0, try 1, read 1, try 2, try node"},
		"no job, and copies":                     {"mall:1 old:2", "", "read 1, try 2, try node"},
		"a job where copies are":                 {"mall:1 old:2", "cfg/a", "read 1, try 2, try node"},
		"copies for others":                      {"mall:1 mall:2", "shop/a", "try node"},
		"an owner without a namespace":           {"old:1", "/a", "read 0, try 1, try node"},
	} {
		t.Run(name, func(t *testing.T) {
			var names []types.NamespacedName
			var content []cachedSecret
			for i, secret := range strings.Fields(test.secrets) {
				of, users, _ := strings.Cut(secret, ":")
				name := types.NamespacedName{Namespace: "cfg", Name: string(rune('0' + i))}
				if of == "old" {
					of = "mall"
				} else {
					name.Name += pulljobs.CopyMark(of)
				}
				var entries []string
				for _, user := range strings.FieldsFunc(users, func(r rune) bool { return r == ',' }) {
					entries = append(entries, `"docker.io":{"username":"`+user+`"}`)
				}
				made := cachedSecret{namespace: of, copied: test.jobs != "",
					secret: copied(name.Name, of+"/s", "", strings.Join(entries, ","))}
				made.users = strings.ReplaceAll(test.jobs, " ", ",")
				names, content = append(names, name), append(content, made)
			}
			var done []string
			read := func(name types.NamespacedName) (cachedSecret, error) {
				done = append(done, "read "+name.Name[:1])
				return content[name.Name[0]-'0'], nil
			}
			node := func() []runtime.Auth { return []runtime.Auth{{Username: "node"}} }
			for auth, err := range newRounds(names, strings.Fields(test.jobs), "img").all(t.Context(), read, node) {
				if err != nil {
					t.Fatal(err)
				}
				done = append(done, "try "+auth.Username)
			}
			if diff := cmp.Diff(test.want, strings.Join(done, ", ")); diff != "" {
				t.Errorf("what is read and tried (-want +got):\n%s", diff)
			}
		})
	}
}

// IMG-137 (part): a tenant has a job for the tag of another one, and a credential that the registry answers with something else than
// that it is wrong, such as a token that is none. The image is for everybody, and the other one pulls it without credentials. If
// the credentials of both fail like that, nobody tells that he may pull without.
func TestACredentialThatFailsKeepsNoOtherTenantFromAPublicImage(t *testing.T) {
	for name, test := range map[string]struct{ content, want string }{
		"the other has none":     {"", "docker.io/library/img:1 m, docker.io/library/img:1"},
		"that of the other, too": {`"docker.io":{"username":"s"}`, "docker.io/library/img:1 m, docker.io/library/img:1 s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := spec(policy(0, 600, 0), "1")
				image := n.Spec.Images["img"]
				image.Tags[0].OwnerReferences = []corev1.ObjectReference{{Kind: "ImagePullJob", Namespace: "mallory", Name: "job"},
					{Kind: "ImagePullJob", Namespace: "shop", Name: "warm"}}
				image.PullSecrets = []appsv1beta1.ReferenceObject{{Namespace: "cfg", Name: "m" + pulljobs.CopyMark("mallory")},
					{Namespace: "cfg", Name: "s" + pulljobs.CopyMark("shop")}}
				n.Spec.Images["img"] = image
				b := newBench(t, 0, n, copied("m"+pulljobs.CopyMark("mallory"), "mallory/s", "mallory/job", `"docker.io":{"username":"m"}`),
					copied("s"+pulljobs.CopyMark("shop"), "shop/s", "shop/warm", test.content))
				b.store.pull = func(_ context.Context, _ string, auth runtime.Auth) error {
					if auth.Username != "" {
						return errors.New("failed to fetch oauth token: unexpected status: 400 Bad Request")
					}
					return nil
				}
				b.pass()
				b.running.Wait()
				if diff := cmp.Diff(test.want, strings.Join(b.store.pulls, ", ")); diff != "" {
					t.Errorf("pulls (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// IMG-135 (part), IMG-137 (part): the API server goes away after the first credential of a pull was rejected. The pull waits
// for it and goes on with the next secret: registries lock accounts whose wrong password they see again and again.
func TestARejectedCredentialIsNotTriedAgainWhileTheAPIServerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := spec(policy(0, 600, 0), "1")
		image := n.Spec.Images["img"]
		image.PullSecrets = []appsv1beta1.ReferenceObject{{Namespace: "cfg", Name: "one"}, {Namespace: "cfg", Name: "two"}}
		n.Spec.Images["img"] = image
		b := newBench(t, 0, n, secret("one", "ann", "docker.io"), secret("two", "ben", "docker.io"))
		back := time.Now().Add(time.Minute)
		b.puller.secrets = newSecrets(interceptor.NewClient(b.api.(client.WithWatch), interceptor.Funcs{ //nolint:forcetypeassert // fakes watch
			Get: func(ctx context.Context, c client.WithWatch, name client.ObjectKey, object client.Object, opts ...client.GetOption) error {
				if _, ok := object.(*corev1.Secret); ok && name.Name == "two" && time.Now().Before(back) {
					return errors.New("dial tcp 10.0.0.1:6443: connect: connection refused")
				}
				return c.Get(ctx, name, object, opts...)
			}}), b.puller.clock)
		b.store.pull = func(_ context.Context, _ string, auth runtime.Auth) error {
			if auth.Username == "ben" {
				return nil
			}
			return errors.New("failed to authorize: 401 Unauthorized")
		}
		b.pass()
		b.running.Wait()
		if diff := cmp.Diff([]string{"docker.io/library/img:1 ann", "docker.io/library/img:1 ben"}, b.store.pulls); diff != "" {
			t.Errorf("pulls (-want +got):\n%s", diff)
		}
	})
}

// IMG-136 (part), IMG-137 (part): a pull that times out while it waits for the API server tells that once, and which
// credentials were rejected before.
func TestAPullThatTimesOutWhileItReadsSecretsTellsWhatItTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := spec(policy(0, 60, 0), "1")
		image := n.Spec.Images["img"]
		image.PullSecrets = []appsv1beta1.ReferenceObject{{Namespace: "cfg", Name: "one"}, {Namespace: "cfg", Name: "two"}}
		n.Spec.Images["img"] = image
		b := newBench(t, 0, n, secret("one", "ann", "docker.io"))
		b.puller.secrets = newSecrets(interceptor.NewClient(b.api.(client.WithWatch), interceptor.Funcs{ //nolint:forcetypeassert // fakes watch
			Get: func(ctx context.Context, c client.WithWatch, name client.ObjectKey, object client.Object, opts ...client.GetOption) error {
				if name.Name == "two" {
					return errors.New("no answer")
				}
				return c.Get(ctx, name, object, opts...)
			}}), b.puller.clock)
		b.store.pull = func(context.Context, string, runtime.Auth) error { return errors.New("401 Unauthorized") }
		b.pass()
		b.running.Wait()
		b.pass()
		if got, want := b.tags(), "1 Failed 401 Unauthorized\npulling was cancelled after the timeout of 1m0s: secrets cannot be read: secret cfg/two: no answer"; got != want {
			t.Errorf("result: got %q, want %q", got, want)
		}
	})
}
