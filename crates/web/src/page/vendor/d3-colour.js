<!--reason-->
