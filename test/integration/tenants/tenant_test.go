//go:build integration

package tenants

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/afloat-project/afloat/test/story"
)

// tenant is the hostile user in a namespace of its own. Its requests may be refused: it only counts answers.
type tenant struct {
	client.Client
	w         *world
	namespace string
	config    *rest.Config

	// looping is closed when the attack has been prepared, and goes on until its context has ended.
	looping chan struct{}

	mu      sync.Mutex
	answers map[int]int
}

// newTenant makes a namespace in which the hostile user has the rights of role edit.
func (w *world) newTenant(namespace string) *tenant {
	w.t.Helper()
	w.mayEdit(hostile, namespace)
	m := &tenant{w: w, namespace: namespace, config: rest.CopyConfig(w.user(hostile).Config()), answers: map[int]int{}, looping: make(chan struct{})}
	m.config.QPS = -1
	m.config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return counted(func(r *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(r)
			if err == nil && r.Method != http.MethodGet { // reads find out the paths of kinds, too
				m.mu.Lock()
				m.answers[response.StatusCode]++
				m.mu.Unlock()
			}
			return response, err
		})
	})
	var err error
	if m.Client, err = story.NewClient(m.config); err != nil {
		w.t.Fatal(err)
	}
	return m
}

type counted func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (c counted) RoundTrip(r *http.Request) (*http.Response, error) { return c(r) }

// accepted returns how many requests were accepted, and a text about all of them.
func (m *tenant) accepted() (n int, text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var parts []string
	for _, code := range slices.Sorted(maps.Keys(m.answers)) {
		if code < http.StatusMultipleChoices {
			n += m.answers[code]
		} else {
			parts = append(parts, fmt.Sprintf("%d×%d", m.answers[code], code))
		}
	}
	return n, strings.Join(append([]string{fmt.Sprintf("%d accepted", n)}, parts...), ", ")
}

// make creates an object in the namespace of the tenant, if it may, and returns it as it was answered.
func (m *tenant) make(ctx context.Context, o *unstructured.Unstructured, options ...client.CreateOption) *unstructured.Unstructured {
	if o.GetNamespace() == "" {
		o.SetNamespace(m.namespace)
	}
	_ = m.Create(ctx, o, options...)
	return o
}

// makes creates an object from a manifest in YAML.
func (m *tenant) makes(ctx context.Context, manifest string, values ...any) {
	m.make(ctx, object(fmt.Sprintf(manifest, values...)))
}

// patches changes an object by a merge patch.
func (m *tenant) patches(ctx context.Context, o client.Object, patch string) {
	copied := o.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy
	_ = m.Patch(ctx, copied, client.RawPatch(types.MergePatchType, []byte(patch)))
}

// pods returns the pods of the namespace.
func (m *tenant) pods(ctx context.Context) []corev1.Pod {
	var list corev1.PodList
	_ = m.w.kube.List(ctx, &list, client.InNamespace(m.namespace))
	return list.Items
}

// hasPods waits until there are n pods in the namespace, or for as long as the attack may prepare itself.
func (m *tenant) hasPods(ctx context.Context, n int) error {
	err := within(ctx, time.Minute, func() error {
		if have := len(m.pods(ctx)); have < n {
			return fmt.Errorf("%d pods, want %d", have, n)
		}
		return nil
	})
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the time of the attack is over
	}
	return err
}

// object reads a manifest in YAML.
func object(manifest string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &o.Object); err != nil {
		panic(fmt.Sprintf("%v: %.300s", err, manifest))
	}
	return o
}

// set sets a field of an object, whose path has dots.
func with(o *unstructured.Unstructured, path string, value any) *unstructured.Unstructured {
	if err := unstructured.SetNestedField(o.Object, value, strings.Split(path, ".")...); err != nil {
		panic(err)
	}
	return o
}

// each runs do for 0 to n-1, some at a time, until the context has ended.
func each(ctx context.Context, n, atOnce int, do func(i int)) {
	var all sync.WaitGroup
	next := make(chan int)
	for range atOnce {
		all.Go(func() {
			for i := range next {
				do(i)
			}
		})
	}
feed:
	for i := range n {
		select {
		case next <- i:
		case <-ctx.Done():
			break feed
		}
	}
	close(next)
	all.Wait()
}

// again runs do in several loops as fast as it returns, until the context has ended. It is the last part of
// an attack.
func (m *tenant) again(ctx context.Context, loops int, do func(loop, i int)) {
	close(m.looping)
	var all sync.WaitGroup
	for loop := range loops {
		all.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				do(loop, i)
			}
		})
	}
	all.Wait()
}

// cleaned are the kinds that are removed after an attack, workloads first.
var cleaned = []schema.GroupVersionKind{
	{Group: "policy.kruise.io", Version: "v1beta1", Kind: "PodUnavailableBudget"},
	{Group: "apps.kruise.io", Version: "v1beta1", Kind: "AdvancedCronJob"}, {Group: "apps.kruise.io", Version: "v1beta1", Kind: "UnitedDeployment"},
	{Group: "apps.kruise.io", Version: "v1beta1", Kind: "BroadcastJob"}, {Group: "apps.kruise.io", Version: "v1beta1", Kind: "CloneSet"},
	{Group: "apps.kruise.io", Version: "v1beta1", Kind: "StatefulSet"}, {Group: "apps.kruise.io", Version: "v1beta1", Kind: "DaemonSet"},
	{Group: "apps.kruise.io", Version: "v1beta1", Kind: "WorkloadSpread"}, {Group: "apps.kruise.io", Version: "v1beta1", Kind: "PersistentPodState"},
	{Group: "apps.kruise.io", Version: "v1alpha1", Kind: "PodProbeMarker"}, {Group: "apps.kruise.io", Version: "v1beta1", Kind: "ImageListPullJob"},
	{Group: "apps.kruise.io", Version: "v1beta1", Kind: "ImagePullJob"}, {Group: "apps.kruise.io", Version: "v1beta1", Kind: "ContainerRecreateRequest"},
	{Group: "apps", Version: "v1", Kind: "Deployment"}, {Group: "apps", Version: "v1", Kind: "ReplicaSet"}, {Group: "apps", Version: "v1", Kind: "StatefulSet"},
	{Group: "batch", Version: "v1", Kind: "Job"}, {Version: "v1", Kind: "Pod"}, {Version: "v1", Kind: "PersistentVolumeClaim"},
	{Version: "v1", Kind: "ConfigMap"}, {Version: "v1", Kind: "Secret"}, {Group: "apps", Version: "v1", Kind: "ControllerRevision"},
}

// cleans removes everything of the tenant, until nothing comes back.
func (m *tenant) cleans(ctx context.Context) error {
	calm := 0
	return within(ctx, 2*patience, func() error {
		left := 0
		for _, kind := range cleaned {
			list := &metav1.PartialObjectMetadataList{}
			list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
			if err := m.w.kube.List(ctx, list, client.InNamespace(m.namespace)); err != nil {
				return err
			}
			left += len(list.Items)
			each(ctx, len(list.Items), 16, func(i int) { // a deletion of a collection is one after the other, and an attack leaves 18,000 claims
				o := &list.Items[i]
				o.SetGroupVersionKind(kind)
				if len(o.GetFinalizers()) > 0 || o.GetLabels()["policy.kruise.io/delete-protection"] != "" {
					_ = m.w.kube.Patch(ctx, o.DeepCopy(), client.RawPatch(types.MergePatchType,
						[]byte(`{"metadata": {"finalizers": null, "labels": {"policy.kruise.io/delete-protection": null}}}`)))
				}
				_ = m.w.kube.Delete(ctx, o, client.GracePeriodSeconds(0))
			})
		}
		if calm++; left > 0 {
			calm = 0
		}
		if calm < 2 {
			return errors.New("objects are left")
		}
		return nil
	})
}

// posts sends a body as it is to the path of a kind.
func (m *tenant) posts(ctx context.Context, plural string, body []byte) {
	if by, err := rest.HTTPClientFor(m.config); err == nil {
		m.postsBy(ctx, by, plural, body)
	}
}

func (m *tenant) postsBy(ctx context.Context, by *http.Client, plural string, body []byte) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost,
		strings.TrimSuffix(m.config.Host, "/")+"/apis/apps.kruise.io/v1beta1/namespaces/"+m.namespace+"/"+plural, bytes.NewReader(body))
	if err != nil {
		return
	}
	request.Header.Set("Content-Type", "application/json")
	if response, err := by.Do(request); err == nil {
		_ = response.Body.Close()
	}
}
