// Package generator makes ResourceDistributions from files and literals, like the generators of kustomize
// make Secrets and ConfigMaps (OPS-170). Code of kustomize reads the sources and encodes the data, so that
// keys, quotation marks and binary files have the same meaning here.
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

// Kind is the kind of the input, in v1alpha1 of the group of the output.
const Kind = "ResourceDistributionGenerator"

// config is the input.
type config struct {
	metav1.TypeMeta `json:",inline"`
	// Metadata holds the name of the ResourceDistribution. Its annotations tell kustomize how to run this
	// program.
	Metadata metav1.ObjectMeta `json:"metadata"`
	// OutputVersion is v1beta1, the default, or v1alpha1.
	OutputVersion string      `json:"outputVersion,omitempty"`
	Resource      resource    `json:"resource"`
	Options       keysOptions `json:"options"`
	Targets       targets     `json:"targets"`
}

// resource describes the resource to distribute.
type resource struct {
	ResourceKind string `json:"resourceKind"`
	ResourceName string `json:"resourceName"`
	// Literals are key=value, Files are [key=]path, and Envs are files with one key=value per line.
	Literals []string `json:"literals,omitempty"`
	Files    []string `json:"files,omitempty"`
	Envs     []string `json:"envs,omitempty"`
	// Type is the type of a Secret.
	Type            string          `json:"type,omitempty"`
	ResourceOptions resourceOptions `json:"resourceOptions"`
}

// keysOptions holds the labels and annotations of the ResourceDistribution.
type keysOptions struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// resourceOptions holds the labels, annotations and options of the resource.
type resourceOptions struct {
	keysOptions `json:",inline"`
	Immutable   bool `json:"immutable,omitempty"`
}

// targets selects the namespaces.
type targets struct {
	AllNamespaces          bool                 `json:"allNamespaces,omitempty"`
	IncludedNamespaces     []string             `json:"includedNamespaces,omitempty"`
	ExcludedNamespaces     []string             `json:"excludedNamespaces,omitempty"`
	NamespaceLabelSelector metav1.LabelSelector `json:"namespaceLabelSelector"`
}

// Run reads a list of resources in the format of kustomize functions, with a ResourceDistributionGenerator as
// the configuration. It adds the ResourceDistribution and writes the list. Files are read only in the working
// directory and below, as in kustomize itself.
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

// generate makes the ResourceDistribution that the document describes.
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

// read returns the input, or an error with everything that is wrong.
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

	made.RemoveBuildAnnotations() // annotations of kustomize itself
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

// list converts namespaces to the format of the output.
func list(names []string) v1beta1.ResourceDistributionTargetNamespaces {
	var namespaces v1beta1.ResourceDistributionTargetNamespaces
	for _, name := range names {
		namespaces.List = append(namespaces.List, v1beta1.ResourceDistributionNamespace{Name: name})
	}
	return namespaces
}
