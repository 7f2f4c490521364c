// Package generator makes ResourceDistributions out of files and literals, as kustomize's own generators make
// Secrets and ConfigMaps (OPS-170). What reads the sources and encodes the data is kustomize's code, so that
// a key, a quotation mark or a binary file means the same here as there.
package generator

import (
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/kustomize/api/kv"
	"sigs.k8s.io/kustomize/api/pkg/loader"
	"sigs.k8s.io/kustomize/api/provider"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/kustomize/kyaml/fn/framework"
	"sigs.k8s.io/kustomize/kyaml/kio"
	kyaml "sigs.k8s.io/kustomize/kyaml/yaml"
	"sigs.k8s.io/yaml"

	"github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/api/apps/v1beta1"
)

// Kind of the input, in v1alpha1 of the group of the output.
const Kind = "ResourceDistributionGenerator"

// config is the input.
type config struct {
	metav1.TypeMeta `json:",inline"`
	// Metadata holds the name of the ResourceDistribution. Its annotations are for kustomize: they say how
	// this program is run.
	Metadata metav1.ObjectMeta `json:"metadata"`
	// OutputVersion is v1beta1, the default, or v1alpha1.
	OutputVersion string      `json:"outputVersion,omitempty"`
	Resource      resource    `json:"resource"`
	Options       keysOptions `json:"options"`
	Targets       targets     `json:"targets"`
}

// resource is what is distributed.
type resource struct {
	ResourceKind string `json:"resourceKind"`
	ResourceName string `json:"resourceName"`
	// Literals are key=value, Files are [key=]path, Envs are files with a key=value in each line.
	Literals []string `json:"literals,omitempty"`
	Files    []string `json:"files,omitempty"`
	Envs     []string `json:"envs,omitempty"`
	// Type of a Secret.
	Type            string          `json:"type,omitempty"`
	ResourceOptions resourceOptions `json:"resourceOptions"`
}

// keysOptions are labels and annotations of the ResourceDistribution.
type keysOptions struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// resourceOptions are those of the resource.
type resourceOptions struct {
	keysOptions `json:",inline"`
	Immutable   bool `json:"immutable,omitempty"`
}

// targets are the namespaces.
type targets struct {
	AllNamespaces          bool                 `json:"allNamespaces,omitempty"`
	IncludedNamespaces     []string             `json:"includedNamespaces,omitempty"`
	ExcludedNamespaces     []string             `json:"excludedNamespaces,omitempty"`
	NamespaceLabelSelector metav1.LabelSelector `json:"namespaceLabelSelector"`
}

// Run reads a list of resources in the form of kustomize's functions, whose configuration is a
// ResourceDistributionGenerator, adds what that asks for, and writes the list. Files are read in the working
// directory and below, and nowhere else, as kustomize itself does.
func Run(in io.Reader, out io.Writer) error {
	return framework.Execute(framework.ResourceListProcessorFunc(func(list *framework.ResourceList) error {
		made, err := generate(list.FunctionConfig)
		if err != nil {
			return fmt.Errorf("%s: %w", Kind, err)
		}
		list.Items = append(list.Items, made)
		return nil
	}), &kio.ByteReadWriter{Reader: in, Writer: out, KeepReaderAnnotations: true})
}

// generate makes the ResourceDistribution that the document asks for.
func generate(document *kyaml.RNode) (*kyaml.RNode, error) {
	c, err := read(document)
	if err != nil {
		return nil, err
	}

	raw, err := c.resource()
	if err != nil {
		return nil, err
	}

	text, err := yaml.Marshal(c.distribution(raw))
	if err != nil {
		return nil, err
	}

	return kyaml.Parse(string(text))
}

// read returns the input, or all that is wrong with it.
func read(document *kyaml.RNode) (*config, error) {
	if document.IsNilOrEmpty() {
		return nil, errors.New("functionConfig is missing")
	}

	text, err := document.String()
	if err != nil {
		return nil, err
	}

	data, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		return nil, err
	}

	c := &config{}
	errs, err := kjson.UnmarshalStrict(data, c)
	if err != nil {
		return nil, err
	}

	wrong := func(bad bool, field, rule string) {
		if bad {
			errs = append(errs, fmt.Errorf("%s: %s", field, rule))
		}
	}
	wrong(c.Kind != Kind || c.APIVersion != v1alpha1.GroupVersion.String(), "apiVersion, kind",
		"must be "+v1alpha1.GroupVersion.String()+", "+Kind)
	wrong(c.Metadata.Name == "", "metadata.name", "is required")
	wrong(c.OutputVersion != "" && c.OutputVersion != v1alpha1.GroupVersion.Version &&
		c.OutputVersion != v1beta1.GroupVersion.Version,
		"outputVersion", "must be v1alpha1 or v1beta1")
	wrong(c.Resource.ResourceKind != secret && c.Resource.ResourceKind != configMap, "resource.resourceKind",
		"must be ConfigMap or Secret")
	wrong(c.Resource.ResourceName == "", "resource.resourceName", "is required")
	wrong(c.Resource.Type != "" && c.Resource.ResourceKind != secret, "resource.type", "is for Secrets only")
	selector := &c.Targets.NamespaceLabelSelector
	_, err = metav1.LabelSelectorAsSelector(selector)
	wrong(err != nil, "targets.namespaceLabelSelector", fmt.Sprint(err))
	wrong(!c.Targets.AllNamespaces && len(c.Targets.IncludedNamespaces) == 0 &&
		len(selector.MatchLabels)+len(selector.MatchExpressions) == 0,
		"targets",
		"selects no namespace: one of allNamespaces, includedNamespaces and namespaceLabelSelector is required")

	return c, errors.Join(errs...)
}

// Kinds of resources.
const secret, configMap = "Secret", "ConfigMap"

// resource makes the Secret or ConfigMap.
func (c *config) resource() ([]byte, error) {
	deps := provider.NewDefaultDepProvider()
	from := &c.Resource
	args := types.GeneratorArgs{
		Name: from.ResourceName,
		KvPairSources: types.KvPairSources{
			LiteralSources: from.Literals,
			FileSources:    from.Files,
			EnvSources:     from.Envs,
		},
		Options: &types.GeneratorOptions{
			Labels:                from.ResourceOptions.Labels,
			Annotations:           from.ResourceOptions.Annotations,
			Immutable:             from.ResourceOptions.Immutable,
			DisableNameSuffixHash: true,
		},
	}
	sources, factory := kv.NewLoader(loader.NewFileLoaderAtCwd(filesys.MakeFsOnDisk()),
		deps.GetFieldValidator()), resmap.NewFactory(deps.GetResourceFactory())
	var made resmap.ResMap
	var err error
	if from.ResourceKind == secret {
		made, err = factory.FromSecretArgs(sources, types.SecretArgs{GeneratorArgs: args, Type: from.Type})
	} else {
		made, err = factory.FromConfigMapArgs(sources, types.ConfigMapArgs{GeneratorArgs: args})
	}
	if err != nil {
		return nil, fmt.Errorf("resource: %w", err)
	}

	made.RemoveBuildAnnotations() // kustomize's own
	return made.Resources()[0].MarshalJSON()
}

// distribution returns the output with the resource in it.
func (c *config) distribution(raw []byte) any {
	meta := metav1.ObjectMeta{
		Name:        c.Metadata.Name,
		Labels:      c.Options.Labels,
		Annotations: c.Options.Annotations,
	}
	lists := v1beta1.ResourceDistributionTargetLists{
		AllNamespaces:      c.Targets.AllNamespaces,
		IncludedNamespaces: list(c.Targets.IncludedNamespaces),
		ExcludedNamespaces: list(c.Targets.ExcludedNamespaces),
	}
	what, selector := runtime.RawExtension{Raw: raw}, c.Targets.NamespaceLabelSelector
	const kind = "ResourceDistribution"
	if c.OutputVersion == v1alpha1.GroupVersion.Version {
		return &v1alpha1.ResourceDistribution{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: kind},
			ObjectMeta: meta,
			Spec: v1alpha1.ResourceDistributionSpec{
				Resource: what,
				Targets: v1alpha1.ResourceDistributionTargets{
					ResourceDistributionTargetLists: lists,
					NamespaceLabelSelector:          selector,
				},
			},
		}
	}

	return &v1beta1.ResourceDistribution{
		TypeMeta: metav1.TypeMeta{
			APIVersion: v1beta1.GroupVersion.String(),
			Kind:       kind,
		},
		ObjectMeta: meta,
		Spec: v1beta1.ResourceDistributionSpec{
			Resource: what,
			Targets: v1beta1.ResourceDistributionTargets{
				ResourceDistributionTargetLists: lists,
				NamespaceSelector:               selector,
			},
		},
	}
}

// list returns the namespaces in the form of the output.
func list(names []string) v1beta1.ResourceDistributionTargetNamespaces {
	var namespaces v1beta1.ResourceDistributionTargetNamespaces
	for _, name := range names {
		namespaces.List = append(namespaces.List, v1beta1.ResourceDistributionNamespace{Name: name})
	}
	return namespaces
}
