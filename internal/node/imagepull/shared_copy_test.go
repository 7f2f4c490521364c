package imagepull

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	pulljobs "github.com/afloat-project/afloat/internal/kinds/imagepull"
	"github.com/afloat-project/afloat/internal/node/runtime"
)

// IMG-137 (part), IMG-122 (part): an ImageListPullJob makes a job for each of its images. All use the same pull secret, of which there is
// one copy, and each enters itself into its references before a node gets its image. A node that has just pulled for the
// first of them uses the secret for the second, too, however soon that comes: with a backoffLimit of 0, an image that was
// asked for without credentials is not tried again.
func TestTheNextJobOfAListPullsWithTheSecretThatTheFirstHasUsedAMomentAgo(t *testing.T) {
	for name, later := range map[string]time.Duration{"half a second later": 500 * time.Millisecond, "two seconds later": 2 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				login := copied("login-0123456789abcdef"+pulljobs.CopyMark("shop"), "shop/login", "shop/first",
					`"docker.io":{"username":"ann","password":"secret"}`)
				n := spec(policy(0, 600, 0), "1")
				image := n.Spec.Images["img"]
				owner := func(job string) []corev1.ObjectReference {
					return []corev1.ObjectReference{{APIVersion: "apps.kruise.io/v1beta1", Kind: "ImagePullJob", Namespace: "shop", Name: job}}
				}
				image.Tags[0].OwnerReferences = owner("first")
				image.PullSecrets = []appsv1beta1.ReferenceObject{{Namespace: "cfg", Name: login.Name, Mode: pub.SecretModeBatch}}
				n.Spec.Images["img"] = image
				b := newBench(t, 0, login, n)
				b.store.pull = func(_ context.Context, _ string, auth runtime.Auth) error {
					if auth.Username == "ann" {
						return nil
					}
					return errors.New("failed to authorize: 401 Unauthorized")
				}
				b.pass()
				b.running.Wait()
				time.Sleep(later)
				// The manager enters the second job first, and then gives the node its image.
				login = login.DeepCopy()
				if err := b.api.Get(t.Context(), client.ObjectKeyFromObject(login), login); err != nil {
					t.Fatal(err)
				}
				login.Annotations[pub.SecretReferences] = "shop/first,shop/second"
				if err := b.api.Update(t.Context(), login); err != nil {
					t.Fatal(err)
				}
				now := b.object()
				image = now.Spec.Images["img"]
				next := *image.Tags[0].DeepCopy()
				next.Tag, next.OwnerReferences = "2", owner("second")
				image.Tags = append(image.Tags, next)
				now.Spec.Images["img"] = image
				if err := b.api.Update(t.Context(), now); err != nil {
					t.Fatal(err)
				}
				b.pass()
				b.running.Wait()
				time.Sleep(10 * time.Second)
				b.pass()
				if got := b.tags(); !strings.Contains(got, "1 Succeeded") || !strings.Contains(got, "2 Succeeded") {
					t.Errorf("results: got %s, want both succeeded", got)
				}
			})
		})
	}
}

// IMG-113 (part), IMG-122 (part): the copy of a secret that a node has missed is made again under the same name, since that follows from the
// source: its job was completed by its deadline while the node still tried, and the user makes another one. The node uses
// the copy from then on, and does not go without it for up to ten minutes.
func TestACopyThatIsMadeAgainIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name := types.NamespacedName{Namespace: "cfg", Name: "login-0123456789abcdef" + pulljobs.CopyMark("shop")}
		b := newBench(t, 0)
		s := newSecrets(b.api, b.puller.clock)
		if auths, err := s.credentials(t.Context(), []types.NamespacedName{name}, []string{"shop/first"}, "img"); err != nil || len(auths) > 0 {
			t.Fatalf("credentials without the copy: got %v, %v", auths, err)
		}
		time.Sleep(time.Minute)
		if err := b.api.Create(t.Context(), copied(name.Name, "shop/login", "shop/second", `"docker.io":{"username":"ann","password":"secret"}`)); err != nil {
			t.Fatal(err)
		}
		auths, err := s.credentials(t.Context(), []types.NamespacedName{name}, []string{"shop/second"}, "img")
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(auths, func(a runtime.Auth) bool { return a.Username == "ann" }) {
			t.Error("a minute after the copy was made again it is not used")
		}
	})
}

// IMG-122 (part), IMG-135 (part): the API server does not answer when a node looks whether a job has joined a copy. The pull waits
// for it: what the node knows of the copy is from before the job.
func TestAJobThatJoinsACopyWaitsForTheAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		login := copied("login-0123456789abcdef"+pulljobs.CopyMark("shop"), "shop/login", "shop/first", `"docker.io":{"username":"ann"}`)
		b := newBench(t, 0, login)
		down := false
		s := newSecrets(interceptor.NewClient(b.api.(client.WithWatch), interceptor.Funcs{ //nolint:forcetypeassert // fakes watch
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
				if down {
					return errors.New("no answer")
				}
				return c.Get(ctx, key, object, opts...)
			}}), b.puller.clock)
		names := []types.NamespacedName{client.ObjectKeyFromObject(login)}
		if auths, err := s.credentials(t.Context(), names, []string{"shop/first"}, "img"); err != nil || len(auths) != 1 {
			t.Fatalf("for the first job: got %v, %v, want one", auths, err)
		}
		down = true
		time.Sleep(time.Minute)
		if auths, err := s.credentials(t.Context(), names, []string{"shop/first"}, "img"); err != nil || len(auths) != 1 {
			t.Errorf("for the first job, without the API server: got %v, %v, want one", auths, err)
		}
		if auths, err := s.credentials(t.Context(), names, []string{"shop/second"}, "img"); !errors.Is(err, errSecrets) {
			t.Errorf("for the second job, without the API server: got %v, %v, want an error that the pull waits for", auths, err)
		}
	})
}
