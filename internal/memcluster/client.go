package memcluster

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/platform/podindex"
	"github.com/afloat-project/afloat/internal/platform/slim"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// scheme returns the kinds that are served. Objects of other kinds are unstructured. It is made on the first
// call, because the manager needs it for rehearsals only.
var scheme = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, appsv1beta1.AddToScheme, policyv1beta1.AddToScheme,
		appsv1alpha1.AddToScheme, metav1.AddMetaToScheme,
	} {
		utilruntime.Must(add(s))
	}
	return s
})

// Client returns the manager's client, which reads from its caches and writes to the API server. Methods that
// are not implemented panic.
func (c *Cluster) Client() client.Client {
	return &clusterClient{reader: reader{cluster: c, cached: true}}
}

// APIReader returns the manager's reader, which reads from the API server.
func (c *Cluster) APIReader() client.Reader { return &reader{cluster: c} }

// API returns what the manager reads and writes through.
func (c *Cluster) API() *reconcile.API {
	return reconcile.NewAPI(c.Client(), c.APIReader(), slim.Any, c.Now)
}

var _ client.FieldIndexer = (*Cluster)(nil)

// IndexField implements client.FieldIndexer. The kind is the name of the Go type, except for
// PartialObjectMetadata.
func (c *Cluster) IndexField(
	_ context.Context, object client.Object, field string, index client.IndexerFunc,
) error {
	kind := reflect.TypeOf(object).Elem().Name()
	if metadata, ok := object.(*metav1.PartialObjectMetadata); ok {
		kind = metadata.Kind
	}
	if c.indexes == nil {
		c.indexes = map[[2]string]client.IndexerFunc{}
	}
	c.indexes[[2]string{kind, field}] = index
	return nil
}

// Pods returns an index of the pods in the manager's caches. It returns pods in the order of their names,
// because all randomness of a simulation must come from its seed.
func (c *Cluster) Pods() *podindex.Index {
	index := &podindex.Index{}
	index.Add(podSource{c})
	return index
}

// ask lets the interceptor answer a request. It holds a lock until done is called, so that there is one
// request at a time.
func (c *Cluster) ask(r *Request) (done func(), err error) {
	c.requests.Lock()
	if c.Interceptor != nil {
		err = c.Interceptor.Request(r)
	}
	return c.requests.Unlock, err
}

type podSource struct{ cluster *Cluster }

func (s podSource) List() []any {
	var all []any
	for _, pod := range s.cluster.List("Pod", true) {
		all = append(all, pod)
	}
	return all
}

func (s podSource) ByIndex(index, value string) ([]any, error) {
	var found []any
	valuesOf := podindex.Indexers()[index]
	for _, pod := range s.List() {
		values, err := valuesOf(pod)
		if err != nil {
			return nil, err
		}
		if slices.Contains(values, value) {
			found = append(found, pod)
		}
	}
	return found, nil
}

// reader reads from the caches or from the API server.
type reader struct {
	cluster *Cluster
	cached  bool
}

func (r *reader) kindOf(object runtime.Object) string {
	gvk, err := apiutil.GVKForObject(object, scheme())
	if err != nil {
		panic(err)
	}
	return gvk.Kind
}

// Get implements client.Reader.
func (r *reader) Get(
	_ context.Context, name client.ObjectKey, into client.Object, options ...client.GetOption,
) error {
	key := r.cluster.key(r.kindOf(into), name.Namespace, name.Name)
	if !r.cached {
		done, err := r.cluster.ask(&Request{Verb: "get", Key: key})
		defer done()
		if err != nil {
			return err
		}
	}

	found := r.cluster.Get(key)
	if r.cached {
		found = r.cluster.Cached(key)
	}
	if found == nil || found.GetNamespace() != name.Namespace {
		return notFound(key)
	}

	shared := (&client.GetOptions{}).ApplyOptions(options).UnsafeDisableDeepCopy
	return assign(into, found, r.cached && shared != nil && *shared)
}

// List implements client.Reader.
func (r *reader) List(_ context.Context, into client.ObjectList, options ...client.ListOption) error {
	asked := (&client.ListOptions{}).ApplyOptions(options)
	kind := strings.TrimSuffix(r.kindOf(into), "List")
	if !r.cached {
		done, err := r.cluster.ask(&Request{Verb: "list", Key: Key{Kind: kind}})
		defer done()
		if err != nil {
			return err
		}
	}

	items, err := meta.GetItemsPtr(into)
	if err != nil {
		return err
	}

	list := reflect.ValueOf(items).Elem()
	list.SetZero()

	shared := asked.UnsafeDisableDeepCopy
	for _, object := range r.cluster.List(kind, r.cached) {
		selected, err := r.selects(asked, kind, object)
		if err != nil {
			return err
		}
		if !selected {
			continue
		}
		item := reflect.New(list.Type().Elem())
		if err := assign(item.Interface().(client.Object), object,
			r.cached && shared != nil && *shared); err != nil {
			return err
		}
		list.Set(reflect.Append(list, item.Elem()))
	}

	return nil
}

func (r *reader) selects(asked *client.ListOptions, kind string, object client.Object) (bool, error) {
	if asked.Namespace != "" && object.GetNamespace() != asked.Namespace ||
		asked.LabelSelector != nil && !asked.LabelSelector.Matches(labels.Set(object.GetLabels())) {
		return false, nil
	}
	if asked.FieldSelector == nil {
		return true, nil
	}

	for _, requirement := range asked.FieldSelector.Requirements() {
		index := r.cluster.indexes[[2]string{kind, requirement.Field}]
		if index == nil {
			return false, fmt.Errorf("no index of %s by %s", kind, requirement.Field)
		}
		if !slices.Contains(index(object), requirement.Value) {
			return false, nil
		}
	}

	return true, nil
}

// assign sets into to the object. shared means that both share maps and slices.
func assign(into client.Object, object client.Object, shared bool) error {
	if !shared {
		object = object.DeepCopyObject().(client.Object)
	}
	if reflect.TypeOf(into) == reflect.TypeOf(object) {
		reflect.ValueOf(into).Elem().Set(reflect.ValueOf(object).Elem())
		return nil
	}

	switch into := into.(type) {
	case *metav1.PartialObjectMetadata:
		into.ObjectMeta = metav1.ObjectMeta{
			Namespace:                  object.GetNamespace(),
			Name:                       object.GetName(),
			UID:                        object.GetUID(),
			ResourceVersion:            object.GetResourceVersion(),
			Generation:                 object.GetGeneration(),
			CreationTimestamp:          object.GetCreationTimestamp(),
			DeletionTimestamp:          object.GetDeletionTimestamp(),
			DeletionGracePeriodSeconds: object.GetDeletionGracePeriodSeconds(),
			Labels:                     object.GetLabels(),
			Annotations:                object.GetAnnotations(),
			OwnerReferences:            object.GetOwnerReferences(),
			Finalizers:                 object.GetFinalizers(),
		}
		return nil
	case *unstructured.Unstructured:
		gvk := into.GroupVersionKind()
		document, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return err
		}
		into.Object = document
		into.SetGroupVersionKind(gvk)
		return nil
	}

	return fmt.Errorf("a %T cannot be read as %T", object, into)
}

// clusterClient writes to the API server.
type clusterClient struct {
	client.Client // methods that are not implemented
	reader
}

var _ client.Client = (*clusterClient)(nil)

// Get implements client.Reader.
func (c *clusterClient) Get(
	ctx context.Context, name client.ObjectKey, into client.Object, options ...client.GetOption,
) error {
	return c.reader.Get(ctx, name, into, options...)
}

// List implements client.Reader.
func (c *clusterClient) List(
	ctx context.Context, into client.ObjectList, options ...client.ListOption,
) error {
	return c.reader.List(ctx, into, options...)
}

// Scheme implements client.Client.
func (c *clusterClient) Scheme() *runtime.Scheme { return scheme() }

// Create implements client.Writer. The object is stored with its Go type if the scheme knows it.
func (c *clusterClient) Create(
	_ context.Context, object client.Object, options ...client.CreateOption,
) error {
	request := &Request{
		Verb:   "create",
		Key:    c.cluster.key(c.kindOf(object), object.GetNamespace(), object.GetName()),
		Object: object,
	}
	done, err := c.cluster.ask(request)
	defer done()

	if err != nil {
		return err
	}
	if len((&client.CreateOptions{}).ApplyOptions(options).DryRun) > 0 {
		if c.cluster.Get(request.Key) != nil {
			return apierrors.NewAlreadyExists(group, request.Key.Name)
		}
		return nil
	}

	stored := request.Object.DeepCopyObject().(client.Object)
	if document, ok := stored.(*unstructured.Unstructured); ok {
		if typed, err := scheme().New(document.GroupVersionKind()); err == nil {
			text, err := json.Marshal(document.Object) // numbers in it may have any type
			if err != nil {
				return err
			}
			if err := json.Unmarshal(text, typed); err != nil {
				return err
			}
			stored = typed.(client.Object)
		}
	}

	created, err := c.cluster.Create(request.Key, stored)
	if err != nil {
		return err
	}

	return assign(object, created, false)
}

// Delete implements client.Writer.
func (c *clusterClient) Delete(
	_ context.Context, object client.Object, options ...client.DeleteOption,
) error {
	asked := (&client.DeleteOptions{}).ApplyOptions(options)
	exactly := &metav1.PartialObjectMetadata{}
	if guard := asked.Preconditions; guard != nil {
		exactly.UID, exactly.ResourceVersion = *cmp.Or(guard.UID, new(types.UID)),
			*cmp.Or(guard.ResourceVersion, new(string))
	}

	request := &Request{
		Verb:            "delete",
		Key:             c.cluster.key(c.kindOf(object), object.GetNamespace(), object.GetName()),
		UID:             exactly.UID,
		ResourceVersion: exactly.ResourceVersion,
	}
	done, err := c.cluster.ask(request)
	defer done()

	if err != nil {
		return err
	}

	return c.cluster.Delete(request.Key, exactly)
}

// Patch implements client.Writer.
func (c *clusterClient) Patch(
	_ context.Context, object client.Object, patch client.Patch, _ ...client.PatchOption,
) error {
	return c.patch(object, patch, "")
}

func (c *clusterClient) patch(object client.Object, patch client.Patch, subresource string) error {
	body, err := patch.Data(object)
	if err != nil {
		return err
	}

	uid, version, err := guardsOf(body)
	if err != nil {
		return err
	}

	request := &Request{
		Verb:            "patch",
		Subresource:     subresource,
		Body:            body,
		Key:             c.cluster.key(c.kindOf(object), object.GetNamespace(), object.GetName()),
		UID:             uid,
		ResourceVersion: version,
	}
	done, err := c.cluster.ask(request)
	defer done()

	if err != nil {
		return err
	}

	patched, err := c.cluster.Patch(request.Key, request.Body, subresource)
	if err != nil {
		return err
	}

	return assign(object, patched, false)
}

// SubResource implements client.Client.
func (c *clusterClient) SubResource(name string) client.SubResourceClient {
	return &subresource{client: c, name: name}
}

type subresource struct {
	client.SubResourceClient // methods that are not implemented
	client                   *clusterClient
	name                     string
}

// Patch implements client.SubResourceWriter.
func (s *subresource) Patch(
	_ context.Context, object client.Object, patch client.Patch, _ ...client.SubResourcePatchOption,
) error {
	return s.client.patch(object, patch, s.name)
}
