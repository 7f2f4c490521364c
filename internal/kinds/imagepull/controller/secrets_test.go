package controller

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/imagepull/imagepulltest"
	"github.com/afloat-project/afloat/internal/platform/slim"
	own "github.com/afloat-project/afloat/internal/reconcile"
)

func login(namespace string, kind corev1.SecretType) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "login"}, Type: kind,
		Data: map[string][]byte{".dockerconfigjson": []byte("{}")}}
}

// IMG-057, IMG-089, IMG-111, IMG-116, IMG-123: whatever the state of the pull secret is, the controllers of
// jobs and of NodeImages agree on it, so that both come to rest, and the image is pulled; the user is told
// what is missing.
func TestSecretsComeToRest(t *testing.T) {
	source := login("shop", corev1.SecretTypeDockerConfigJson)
	large := login("shop", corev1.SecretTypeDockerConfigJson)
	large.Data["more"] = make([]byte, pub.MaxPullSecretBytes)
	copied := login("config", corev1.SecretTypeDockerConfigJson)
	copied.Name = copyName(source, 0)
	copied.Annotations = map[string]string{pub.SecretSource: "shop/login", pub.SecretReferences: "shop/other",
		pub.SecretMode: pub.SecretModeBatch}
	for name, test := range map[string]struct {
		namespace string
		objects   []client.Object
		refs      int
		told      string
	}{
		"the source is there":   {"shop", []client.Object{source}, 1, ""},
		"the source is missing": {"shop", nil, 0, "pull secret login does not exist in namespace shop"},
		"the source is gone, another job's copy is there": {"shop", []client.Object{copied}, 1,
			"pull secret login does not exist in namespace shop"},
		"the job is in the namespace of the copies": {"config", []client.Object{login("config", corev1.SecretTypeDockercfg)},
			1, ""},
		"the job is there and the secret is missing": {"config", nil, 0,
			"pull secret login does not exist in namespace config"},
		"a token of a service account is no pull secret": {"shop", []client.Object{login("shop",
			corev1.SecretTypeServiceAccountToken)}, 0, "pull secret login is of type kubernetes.io/service-account-token"},
		"nor is anything else that node daemons have no use for": {"shop", []client.Object{login("shop", corev1.SecretTypeOpaque)}, 0,
			"pull secret login is of type Opaque"},
		"what became something else is not kept up to date either": {"shop", []client.Object{copied, login("shop", corev1.SecretTypeTLS)},
			0, "pull secret login is of type kubernetes.io/tls"},
		"what is too large for nodes is not copied":    {"shop", []client.Object{large}, 0, "pull secret login is too large"},
		"what became too large is not kept up to date": {"shop", []client.Object{copied, large}, 0, "pull secret login is too large"},
	} {
		t.Run(name, func(t *testing.T) {
			job := imagepulltest.Job(func(j *appsv1beta1.ImagePullJob) {
				j.Namespace, j.ResourceVersion, j.Status, j.Spec.PullSecrets = test.namespace, "", appsv1beta1.ImagePullJobStatus{}, []string{"login"}
			})
			other := imagepulltest.Job(func(j *appsv1beta1.ImagePullJob) { j.Name, j.UID, j.ResourceVersion = "other", "uid-other", "" })
			image := imagepulltest.Blank("n")
			image.ResourceVersion = ""
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
			objects := []client.Object{job, other, image, node}
			for _, object := range test.objects {
				objects = append(objects, object.DeepCopyObject().(client.Object)) //nolint:forcetypeassert // as above
			}
			writes := 0
			c := interceptor.NewClient(fakeClient(t, objects...).(client.WithWatch),
				interceptor.Funcs{ //nolint:forcetypeassert // fakes watch
					Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch,
						opts ...client.PatchOption) error {
						writes++
						return c.Patch(ctx, o, p, opts...)
					}})
			events, now := &told{}, imagepulltest.Noon
			jobs := &JobReconciler{API: own.NewAPI(c, c, slim.Any, func() time.Time { return now }), Events: own.NewRecorder(events),
				Secrets: secretsOn(c), Random: func() float64 { return 0 }}
			nodes := &NodeReconciler{API: &own.API{Client: c, Live: c, Now: jobs.Now}, Events: &told{},
				Options: Options{Namespace: "config", Jobs: true}, Random: jobs.Random}
			loop := jobs.controller().Loop(nil)
			passes := func() {
				t.Helper()
				for range 3 {
					for _, pass := range []func(context.Context, reconcile.Request) (reconcile.Result, error){loop.Reconcile,
						nodes.Reconcile} {
						for _, key := range []client.ObjectKey{client.ObjectKeyFromObject(job), client.ObjectKeyFromObject(image)} {
							if _, err := pass(t.Context(), reconcile.Request{NamespacedName: key}); err != nil {
								t.Fatal(err)
							}
						}
					}
				}
			}
			passes()
			writes = 0
			now = now.Add(2 * sourcesEvery) // both look at the secret once more
			if passes(); writes != 0 {
				t.Errorf("%d writes at rest", writes)
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(image), image); err != nil {
				t.Fatal(err)
			}
			got := image.Spec.Images["app"]
			if len(got.Tags) != 1 {
				t.Errorf("number of tags: got %d, want 1\n%+v", len(got.Tags), got)
			}
			if len(got.PullSecrets) != test.refs {
				t.Errorf("number of pull secrets: got %d, want %d\n%+v", len(got.PullSecrets), test.refs, got)
			}
			if got := strings.Join(events.take(), "\n"); (got == "") != (test.told == "") {
				t.Errorf("told: got == \"\": got %t, want %t\n%s", got == "", test.told == "", got)
			} else if !strings.Contains(got, test.told) {
				t.Errorf("told: events: got %q, want it to contain %q", got, test.told)
			}
			var all corev1.SecretList
			if err := c.List(t.Context(), &all, client.InNamespace("config")); err != nil {
				t.Fatal(err)
			}
			for _, s := range all.Items {
				if mine := slices.Contains(users(&s), "shop/warm"); s.Annotations[pub.SecretSource] != "" && mine != (test.refs > 0) {
					t.Errorf("IMG-120: copy %s is used by %v", s.Name, users(&s))
				}
				if s.Type == corev1.SecretTypeTLS {
					t.Errorf("IMG-123: copied: type: got %q, want another value", s.Type)
				}
				if s.Type == corev1.SecretTypeServiceAccountToken {
					t.Errorf("IMG-123: copied: type: got %q, want another value", s.Type)
				}
				if s.Type == corev1.SecretTypeOpaque {
					t.Errorf("IMG-123: copied: type: got %q, want another value", s.Type)
				}
			}
		})
	}
}

// IMG-113: the name of a copy is a name, wherever that of its source is cut.
func TestNamesOfCopies(t *testing.T) {
	for _, n := range []int{1, 100, 213, 214, 215, 253} {
		for _, end := range []string{"a", ".b", "-b", "..b"} {
			source := strings.Repeat("a", max(n-len(end), 0)) + strings.Replace(end, "..", ".", 1)
			name := copyName(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: source}}, 0)
			if errs := validation.IsDNS1123Subdomain(name); len(source) <= 253 && len(validation.IsDNS1123Subdomain(source)) == 0 &&
				len(errs) > 0 {
				t.Errorf("name of the copy of a Secret of %d characters that ends in %s: got %s: %v", n, end, name, errs)
			}
		}
	}
}

// IMG-113 (part), IMG-114 (part), ND-066 (part): who knows namespace and name of a pull secret, which stand
// in every pod that uses it, cannot tell the name of its copy. Two tries make the same one; one of an earlier
// release, under a shorter name, is used on.
func TestCopiesCannotBeFoundByTheirNames(t *testing.T) {
	source := func(uid types.UID) *corev1.Secret {
		s := login("shop", corev1.SecretTypeDockerConfigJson)
		s.UID = uid
		return s
	}
	first, second := copyName(source("1b4e28ba-2fa1-41d2-883f-0016d3cca427"), 0),
		copyName(source("6fa459ea-ee8a-4ca4-894e-db77e160355e"), 0)
	if first == second {
		t.Errorf("first: got %q, want another value\n%s", first, second)
	}
	if len(first) < len("login-")+16 {
		t.Errorf("length of the first name: got %d, want at least %d\n%s", len(first), len("login-")+16, second)
	}
	if want := copyName(source("1b4e28ba-2fa1-41d2-883f-0016d3cca427"), 0); first != want {
		t.Errorf("first: got %q, want %q\n%s", first, want, second)
	}
	earlier := login("config", corev1.SecretTypeDockerConfigJson)
	earlier.Name, earlier.Annotations = "login-0a1b2c", map[string]string{pub.SecretSource: "shop/login",
		pub.SecretReferences: "shop/other", pub.SecretMode: pub.SecretModeBatch}
	c := fakeClient(t, source("u"), earlier, existing("shop", "other"))
	job := imagepulltest.Job(func(j *appsv1beta1.ImagePullJob) { j.Namespace, j.Spec.PullSecrets = "shop", []string{"login"} })
	refs, problems, err := (secretsOn(c)).Sync(t.Context(), job)
	if err != nil {
		t.Errorf("unexpected error: %v\n%v\n%v", err, refs, problems)
	} else if len(problems) > 0 {
		t.Errorf("problems: got %q, want none\n%v\n%v", problems, refs, err)
	} else if len(refs) != 1 {
		t.Errorf("number of references: got %d, want 1\n%v\n%v\n%v", len(refs), refs, problems, err)
	} else if refs[0].Name != "login-0a1b2c" {
		t.Errorf("name of the first reference: got %q, want %q\n%v\n%v\n%v", refs[0].Name, "login-0a1b2c", refs,
			problems, err)
	}
}

// IMG-120: a job that ends, or that names another secret, leaves its copy, and the last one takes it along;
// but not if another job came to use it since it was read: that one would pull without credentials.
func TestACopyIsNotTakenFromAJobThatJustCame(t *testing.T) {
	for name, leave := range map[string]func(*Secrets, *appsv1beta1.ImagePullJob) error{
		"it ended": func(s *Secrets, job *appsv1beta1.ImagePullJob) error {
			return s.Release(context.Background(), client.ObjectKeyFromObject(job))
		},
		"it names another secret": func(s *Secrets, job *appsv1beta1.ImagePullJob) error {
			job.Spec.PullSecrets = []string{"other"}
			_, _, err := s.Sync(context.Background(), job)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			meanwhile := func() {}
			c := interceptor.NewClient(fakeClient(t, login("shop", corev1.SecretTypeDockerConfigJson)).(client.WithWatch),
				interceptor.Funcs{ //nolint:forcetypeassert // fakes watch
					List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
						err := c.List(ctx, list, opts...)
						happens := meanwhile
						meanwhile = func() {}
						happens()
						return err
					}})
			s := secretsOn(c)
			using := func(name string) *appsv1beta1.ImagePullJob {
				return imagepulltest.Job(func(j *appsv1beta1.ImagePullJob) { j.Name, j.Spec.PullSecrets = name, []string{"login"} })
			}
			come := func(name string) {
				t.Helper()
				if refs, _, err := s.Sync(t.Context(), using(name)); err != nil {
					t.Errorf("%s: unexpected error: %v\n%v", name, err, refs)
				} else if len(refs) != 1 {
					t.Errorf("%s: number of references: got %d, want 1\n%v\n%v", name, len(refs), refs, err)
				}
			}
			left := func() string {
				t.Helper()
				var all corev1.SecretList
				if err := c.List(t.Context(), &all, client.InNamespace("config")); err != nil {
					t.Fatal(err)
				}
				var text []string
				for _, copied := range all.Items {
					text = append(text, strings.Join(users(&copied), ","))
				}
				return strings.Join(text, "; ")
			}
			come("a")
			meanwhile = func() { come("b") } // the last user goes, another one comes
			if err := leave(s, using("a")); !apierrors.IsConflict(err) {
				t.Errorf("error: got %v, want one of kind Conflict\n%s", err, left())
			} else if got := left(); got != "shop/a,shop/b" {
				t.Errorf("%v: left: got %q, want %q", err, got, "shop/a,shop/b")
			}
			meanwhile = func() { come("c") } // one of two goes, a third one comes
			if err := leave(s, using("a")); !apierrors.IsConflict(err) {
				t.Errorf("error: got %v, want one of kind Conflict\n%s", err, left())
			} else if got := left(); got != "shop/a,shop/b,shop/c" {
				t.Errorf("%v: left: got %q, want %q", err, got, "shop/a,shop/b,shop/c")
			}
			for _, user := range []string{"a", "b", "c"} {
				if err := leave(s, using(user)); err != nil {
					t.Errorf("releasing the copies of %s: %v", user, err)
				}
			}
			if left() != "" {
				t.Errorf("left: %s", left())
			}
		})
	}
}

// A copy of a pull secret that was deleted does for ten minutes, as when somebody replaces it, and not for
// ever; one that is back is used on.
func TestACopyDoesNotOutliveItsSource(t *testing.T) {
	now := imagepulltest.Noon
	c := fakeClient(t, login("shop", corev1.SecretTypeDockerConfigJson))
	s := &Secrets{API: &own.API{Client: c, Live: c, Now: func() time.Time { return now }}, Namespace: "config"}
	job := imagepulltest.Job(func(j *appsv1beta1.ImagePullJob) { j.Spec.PullSecrets = []string{"login"} })
	refs := func(when string, want int) {
		t.Helper()
		if refs, _, err := s.Sync(t.Context(), job); err != nil {
			t.Errorf("%s: unexpected error: %v\n%v", when, err, refs)
		} else if len(refs) != want {
			t.Errorf("%s: number of references: got %d, want %d\n%v\n%v", when, len(refs), want, refs, err)
		}
	}
	source := func() *corev1.Secret { return login("shop", corev1.SecretTypeDockerConfigJson) }
	refs("it is there", 1)
	if err := c.Delete(t.Context(), source()); err != nil {
		t.Fatal(err)
	}
	refs("it is gone", 1)
	now = now.Add(outlives - time.Second)
	refs("for nearly ten minutes", 1)
	if err := c.Create(t.Context(), source()); err != nil {
		t.Fatal(err)
	}
	refs("it is back", 1)
	if err := c.Delete(t.Context(), source()); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Hour)
	refs("it is gone again", 1)
	now = now.Add(outlives)
	refs("for ten minutes", 0)
	var all corev1.SecretList
	if err := c.List(t.Context(), &all, client.InNamespace("config")); err != nil {
		t.Errorf(`c.List(t.Context(), &all, client.InNamespace("config")): unexpected error: %v; %d copies are left: %v`, err,
			len(all.Items), err)
	} else if len(all.Items) > 0 {
		t.Errorf("items: got %v, want none; %d copies are left: %v", all.Items, len(all.Items), err)
	}
}

// IMG-113 (part): the name of a copy has room for the longest name of a secret that keeps it whole.
func TestTheLongestNameOfACopy(t *testing.T) {
	for length, kept := range map[int]int{214: 214, 215: 214, 253: 214} {
		got := copyName(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("s", length)}}, 0)
		if strings.Count(got[:min(len(got), kept)], "s") != kept {
			t.Errorf(`number of kept characters: got %d, want %d; of %d characters: %s`,
				strings.Count(got[:min(len(got), kept)], "s"), kept, length, got)
		}
		if len(got) != kept+39 {
			t.Errorf("number of results: got %d, want %d; of %d characters: %s", len(got), kept+39, length, got)
		}
	}
}
